"""The node: the process that holds one WebDriver session, from its driver's start to its browser's end."""
