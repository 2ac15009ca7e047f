"""The rating page in a real browser, from the first example to the compiled table."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time

import pytest
from reviewers import Launch, make_study, port_is_free, processes_of, stored_answers

from persona_agents.crowdsourcing.study import ASPECTS, onboarding_examples, texts

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("mephisto") is None,
        reason="Mephisto is not installed: make test-crowdsourcing",
    ),
    pytest.mark.skipif(shutil.which("node") is None, reason="there is no node"),
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None or importlib.util.find_spec("selenium") is None,
        reason="there is no Chromium with its driver, or no selenium",
    ),
]

HOSTILE = [
    "<img src=x onerror='document.title=1'><script>document.title=2</script><b>bold</b>&lt;",
    "\u202eright to left\u202c שלום עולם",
    "null \x00 bell \x07 escape \x1b[31m tab\tend",
    "很" * 2500 + "w" * 2500,
    "",
    "   \n ",
]


@pytest.fixture
def open_browser():
    drivers = []

    def open_browser(width=1100, height=900):
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "no-proxy-server"):
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        metrics = {"width": width, "height": height, "pixelRatio": 1}
        options.add_experimental_option(
            "mobileEmulation", {"deviceMetrics": metrics, "userAgent": "test"}
        )
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        drivers.append(driver)
        return driver

    yield open_browser
    for driver in drivers:
        driver.quit()


class Page:
    """What a reviewer does on the page."""

    def __init__(self, driver, port, name):
        self.driver, self.url = driver, f"http://127.0.0.1:{port}/?worker_id={name}"
        driver.get(self.url)

    def find(self, selector):
        from selenium.webdriver.common.by import By

        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait_for(self, condition, seconds=30):
        from selenium.common.exceptions import StaleElementReferenceException

        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if result := condition():
                    return result
            except StaleElementReferenceException:
                pass
            time.sleep(0.05)
        raise TimeoutError(self.text())

    def text(self):
        return self.find("body")[0].text

    def press(self, keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(keys).perform()

    def boxes(self, kind):
        return [box.get_attribute("textContent") for box in self.find(f".{kind}")]

    def pass_onboarding(self, form="scales", language="en"):
        """All examples by keyboard, the first wrongly at first."""
        examples = onboarding_examples(form, language)
        keys = {"scales": "012", "pairs": "123"}[form]
        values = {"scales": [0, 1, 2], "pairs": ["a", "equal", "b"]}[form]
        for number, example in enumerate(examples):
            self.wait_for(lambda example=example: self.boxes("query") == [example["query"]])
            right = [values.index(example["answers"][aspect]) for aspect in ASPECTS]
            if number == 0:
                self.press("".join(keys[(index + 1) % 3] for index in right) + "\n")
                assert self.find("#status.error")
                for aspect, index in zip(ASPECTS, right):  # corrected with the mouse
                    self.find(f"#{aspect} input")[index].click()
                self.find("button.main")[0].click()
            else:
                self.press("".join(keys[index] for index in right) + "\n")
        self.wait_for(lambda: self.find("#progress"))

    def wait_for_progress(self, text):
        self.wait_for(lambda: [line.text for line in self.find("#progress")] == [text], 60)

    def wait_for_text(self, text):
        self.wait_for(lambda: text in self.text(), 60)

    def errors(self):
        return [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def addresses(self):
        entries = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        return {
            entry["params"]["request"]["url"]
            for entry in entries
            if entry["method"] == "Network.requestWillBeSent"
        }


def test_three_reviewers_rate_eight_items_and_the_table_is_compiled(tmp_path, open_browser):
    from persona_agents.crowdsourcing.persona_rating.analysis.compile import compile_study

    study = make_study(tmp_path, samples=4)
    given = {}
    with Launch(study) as launch:
        driver = open_browser()
        for name in ("anna", "ben", "cai"):
            page = Page(driver, launch.port, name)
            page.pass_onboarding()
            for number in range(8):
                page.wait_for_progress(f"{number} of 8 rated")
                (reply,) = page.boxes("reply")
                keys = [(len(reply) + number + n) % 3 for n in range(3)]
                if number == 3:
                    page.press(f"{keys[0]}\n")  # incomplete: stays, and says so
                    assert page.find("#status.error")
                    driver.refresh()  # the same item again
                    page.wait_for_progress("3 of 8 rated")
                    assert page.boxes("reply") == [reply]
                page.press("".join(map(str, keys)))
                given[name, reply] = dict(zip(ASPECTS, keys))
                page.press("\n")
            page.wait_for_text(texts("en")["saved"])
            assert page.errors() == []
        addresses = page.addresses()
        assert launch.wait() == 0
    assert {address.split("/")[2] for address in addresses if address.startswith("http")} == {
        f"127.0.0.1:{launch.port}"
    }
    assert port_is_free(launch.port)
    assert processes_of(study.folder) == []

    stored = stored_answers(study)
    replies = {item["id"]: item["replies"][0] for item in study.items}
    assert {
        (reviewer, replies[item]): answers
        for item, ratings in stored.items()
        for reviewer, answers in ratings.items()
    } == given
    results = compile_study(study.folder, say=lambda text: None)
    assert results["state"] == {"wanted": 24, "there": 24, "items": 8, "short": {}}
    for system in ("alpha", "beta"):
        own = [a["fluency"] for (_, reply), a in given.items() if reply.startswith(system)]
        assert results["means"][system]["fluency"]["mean"] == pytest.approx(sum(own) / len(own))
    assert (study.folder / "results" / "results.tex").exists()


@pytest.mark.parametrize("width", [1100, 360])
def test_hostile_text_is_shown_as_text(tmp_path, open_browser, width):
    study = make_study(tmp_path, len(HOSTILE), ["alpha"], replies=HOSTILE, reviewers=1)
    shown = {}
    with Launch(study) as launch:
        page = Page(open_browser(width), launch.port, "anna")
        page.pass_onboarding()
        for number in range(len(HOSTILE)):
            page.wait_for_progress(f"{number} of 6 rated")
            (reply,) = page.boxes("reply")
            assert not page.find(".reply *"), "markup became elements"
            shown[page.boxes("query")[0]] = reply
            wide, page_width = page.driver.execute_script(
                "return [document.documentElement.scrollWidth, innerWidth]"
            )
            assert wide <= page_width, "the page is wider than the screen"
            box = page.find(".reply")[0].rect
            assert box["x"] + box["width"] <= width
            page.press("210\n")
        assert launch.wait() == 0
        assert page.driver.title == texts("en")["title"]
    assert shown == {
        item["query"]: {
            HOSTILE[2]: "null ␀ bell ␇ escape ␛[31m tab\tend",
            HOSTILE[4]: "(empty)",
            HOSTILE[5]: "(empty)",
        }.get(item["replies"][0], item["replies"][0])
        for item in study.items
    }


def test_side_by_side_in_chinese(tmp_path, open_browser):
    study = make_study(tmp_path, samples=2, form="pairs", language="zh", reviewers=1)
    with Launch(study) as launch:
        page = Page(open_browser(390), launch.port, "安娜")
        page.wait_for(lambda: page.boxes("reply"))
        assert page.find("h1")[0].text == "回复评分"
        page.find("#language")[0].click()
        assert page.find("h1")[0].text == "Rating of replies"
        page.find("#language")[0].click()
        page.pass_onboarding("pairs", "zh")
        given = {}
        for number in range(2):
            page.wait_for_progress(f"已评 {number} / 2")
            given[tuple(page.boxes("reply"))] = {
                "fluency": "a",
                "relevance": "equal",
                "consistency": "b",
            }
            page.press("123\n")
        assert launch.wait() == 0
    stored = stored_answers(study)
    assert {tuple(item["replies"]): stored[item["id"]]["安娜"] for item in study.items} == given


def test_server_that_goes_away_is_noticed_and_answers_are_kept(tmp_path, open_browser):
    study = make_study(tmp_path, samples=2, systems=["alpha"], reviewers=1)
    with Launch(study) as launch:
        page = Page(open_browser(), launch.port, "anna")
        page.pass_onboarding()
        launch.process.kill()
        launch.wait()
        page.press("222\n")
        page.wait_for_text(texts("en")["resending"])
        assert texts("en")["saved"] not in page.text()
    # Started again, the server may hand out the same item, or another one and say so: in either
    # case the page goes on by itself.
    with Launch(study, port=launch.port) as launch:
        page.wait_for(lambda: page.find("#status")[0].text.startswith(("Saved", "Your last")), 60)
        while launch.process.poll() is None and not page.find("#wait"):
            page.press("222\n")
            time.sleep(0.5)
        assert launch.wait() == 0
    assert [len(ratings) for ratings in stored_answers(study).values()] == [1, 1]
