"""A client tells of its test while it runs."""

import json

from selenium import webdriver

from clients import options_for
from herds import Herd


def test_an_event_is_answered_as_by_selenium_grid_and_kept_in_the_log(herd: Herd) -> None:
    driver = webdriver.Remote(herd.url, options=options_for())
    session = driver.session_id
    try:
        event = {"eventType": "test:step", "payload": {"step": "pay"}}
        status, answer, _ = herd.request("POST", f"/wd/hub/session/{session}/se/event", json.dumps(event))
        refused, complaint, _ = herd.request("POST", f"/session/{session}/se/event", "{}")
    finally:
        driver.quit()
    _, log, _ = herd.request("GET", f"/api/sessions/{session}/log")

    assert (status, answer["value"]["success"], answer["value"]["eventType"]) == (200, True, "test:step")
    assert answer["value"]["timestamp"]
    assert (refused, complaint["value"]["error"]) == (400, "invalid argument")
    (kept,) = [entry for entry in log["entries"] if entry["code"] == "EVENT"]
    assert kept["meta"] == {"type": "test:step", "payload": {"step": "pay"}}
