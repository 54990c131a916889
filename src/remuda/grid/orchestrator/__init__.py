"""The orchestrator owns slots: it starts a node for every session that was given one, and gets slots back."""
