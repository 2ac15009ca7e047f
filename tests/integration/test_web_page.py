"""The web chat's page in headless Chromium: whole chats in both languages, and what people need."""

from __future__ import annotations

import os
import shutil

import pytest
from parlai.core.agents import create_agent_from_model_file
from serving import serving

from persona_agents.web.sessions import Service

webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install selenium")
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    not (DRIVER and BROWSER), reason="no Chromium: make browser, or install it and its driver"
)
CHATS = {
    "en": {
        "persona": ["i have a cat.", "i live in rome."],
        "query": "where do you live?",
        "reply": "my home is in rome.",
        "word": "rome",
        "other": ["i have a cat.", "i live in oslo."],
        "other reply": "my home is in oslo.",
        "other word": "oslo",
        "title": "The model's persona",
        "source": "copied from sentence 2 of the persona",
        "notice": "The model has another persona now.",
        "new chat": "A new chat has begun.",
    },
    "zh": {
        "persona": ["我养了小猫。", "我住在海南。"],
        "query": "你住哪里？",
        "reply": "我的家在海南。",
        "word": "海南",
        "other": ["我养了小猫。", "我住在武汉。"],
        "other reply": "我的家在武汉。",
        "other word": "武汉",
        "title": "模型的人设",
        "source": "复制自人设第 2 句",
        "notice": "模型换了人设。",
        "new chat": "新的对话开始了。",
    },
}


@pytest.fixture(scope="module")
def client(copying_model):
    with serving(lambda: Service(create_agent_from_model_file(copying_model))) as client:
        yield client


def start_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1000,640"):
        options.add_argument(f"--{argument}")
    # the page must need nothing from elsewhere
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


@pytest.fixture(scope="module")
def browser():
    driver = start_browser()
    yield driver
    driver.quit()


class Page:
    """One visitor's page."""

    def __init__(self, browser, port: int, language: str | None = None):
        self.browser = browser
        browser.get(f"http://127.0.0.1:{port}/")
        self.wait(lambda: browser.find_element(By.ID, "send").is_enabled())
        if language:
            self.one(f"[data-language={language}]").click()

    def wait(self, condition, seconds: float = 60):
        try:
            waiting = WebDriverWait(self.browser, seconds, 0.05, [StaleElementReferenceException])
            return waiting.until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(f"never came; the page says {self.text()!r}") from None

    def all(self, selector: str):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str):
        (element,) = self.all(selector)
        return element

    def text(self) -> str:
        return self.browser.find_element(By.TAG_NAME, "body").text

    def lines(self, kind: str) -> list[str]:
        """What stands in the chat, without the speakers' names."""
        return [
            line.text.split("\n", 1)[-1] if kind in ("visitor", "model") else line.text
            for line in self.all(f"#log li.{kind}")
        ]

    def ready(self) -> bool:
        return self.one("#log").get_attribute("aria-busy") == "false"

    def say(self, text: str) -> str:
        """Type a message and Enter; the reply."""
        known = len(self.all("#log li.model"))
        self.one("#message").send_keys(text, Keys.ENTER)
        self.wait(lambda: len(self.all("#log li.model")) > known and self.ready())
        return self.lines("model")[-1]

    def edit(self, persona, use: bool = True) -> None:
        editor = self.one("#editor")
        editor.clear()
        editor.send_keys("\n".join(persona))
        if use:
            self.one("#use").click()
            self.wait(lambda: [line.text for line in self.all("#persona li")] == persona)
            self.wait(self.ready)

    def logged_errors(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]


@pytest.mark.parametrize("language", ["en", "zh"])
class TestWholeChat:
    def test_persona_question_source_other_persona(self, browser, client, language, request):
        chat = CHATS[language]
        page = Page(browser, client.port, language)
        assert page.one("html").get_attribute("lang") == language
        assert page.one("#persona-title").text == chat["title"]
        page.edit(chat["persona"])
        assert page.lines("notice")[-1] == chat["notice"]
        assert page.say(chat["query"]) == chat["reply"]
        assert page.lines("visitor") == [chat["query"]]

        (word,) = [w for w in page.all("#log .word.persona") if chat["word"] in w.text]
        colour = word.value_of_css_property("background-color")
        assert colour != page.one("#log .word.generated").value_of_css_property("background-color")
        webdriver.ActionChains(browser).move_to_element(word).perform()
        page.wait(lambda: page.one("#tip").is_displayed())
        tip = page.one("#tip").text
        assert chat["source"] in tip and chat["persona"][1] in tip
        marked = "".join(mark.text for mark in page.all("#persona li:nth-child(2) mark"))
        assert chat["word"] in marked, "the source is marked in the persona beside the chat"
        weights = [float(cell.text) for cell in page.all("#tip tbody tr:last-child td")]
        assert weights[2] == max(weights) and sum(weights) <= 1.002
        if os.environ.get("PERSONA_AGENTS_SCREENSHOTS"):
            browser.save_screenshot(f"{os.environ['PERSONA_AGENTS_SCREENSHOTS']}/{language}.png")

        page.edit(chat["other"])
        assert page.say(chat["query"]) == chat["other reply"]
        words = [w.text for w in page.all("#log li:last-child .word.persona")]
        assert any(chat["other word"] in text for text in words)
        page.one("#reset").click()
        page.wait(lambda: page.lines("notice") == [chat["new chat"]])
        assert not page.lines("model") and not page.lines("visitor")
        assert [line.text for line in page.all("#persona li")] == chat["other"]
        assert page.logged_errors() == []

    def test_by_keyboard_alone(self, browser, client, language):
        """From the message box by Tab: send, then back to a copied word, whose source is told."""
        chat = CHATS[language]
        page = Page(browser, client.port, language)
        page.edit(chat["persona"], use=False)  # an edited persona goes with the next message
        page.one("#message").click()
        assert page.say(chat["query"]) == chat["reply"]
        assert page.browser.switch_to.active_element == page.one("#message")
        for _ in range(12):
            page.browser.switch_to.active_element.send_keys(Keys.SHIFT, Keys.TAB)
            focused = page.browser.switch_to.active_element
            if chat["word"] in focused.text and "persona" in focused.get_attribute("class"):
                break
        else:
            raise AssertionError("no copied word could be reached by Tab")
        assert page.one("#tip").is_displayed()
        assert focused.get_attribute("aria-describedby") == "tip"
        assert chat["source"] in focused.get_attribute("aria-label")
        focused.send_keys(Keys.ESCAPE)
        assert not page.one("#tip").is_displayed()
        # what a screen reader is told when the reply comes
        news = page.one("#news")
        assert news.get_attribute("role") == "status"
        assert chat["reply"] in news.get_attribute("textContent")


@pytest.mark.slow
class TestPage:
    def test_searches(self, browser, client):
        page = Page(browser, client.port, "en")
        page.edit(CHATS["en"]["persona"])
        names = [label.text.strip() for label in page.all("#searches label")]
        assert names == ["greedy", "beam"]
        for search in ("beam", "greedy"):
            page.one(f"#searches input[value={search}]").click()
            assert page.say(CHATS["en"]["query"]) == CHATS["en"]["reply"]

    def test_the_language_of_what_was_said_changes_too(self, browser, client):
        page = Page(browser, client.port, "en")
        page.edit(CHATS["en"]["persona"])
        page.say(CHATS["en"]["query"])
        page.one("[data-language=zh]").click()
        assert page.lines("notice")[-1] == CHATS["zh"]["notice"]
        assert page.lines("model") == [CHATS["en"]["reply"]]
        labels = [word.get_attribute("aria-label") for word in page.all("#log .word.persona")]
        assert any(CHATS["zh"]["source"] in label for label in labels)
        again = Page(browser, client.port)
        assert again.one("html").get_attribute("lang") == "zh", "it is remembered"

    def test_markup_stays_text(self, browser, client):
        hostile = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
        page = Page(browser, client.port, "en")
        title = browser.title
        page.edit([hostile, "i live in rome."])
        page.say(hostile)
        assert page.lines("visitor") == [hostile]
        assert browser.title == title and not page.all("#log img, #persona img, #tip img")

    def test_a_forgotten_chat_begins_anew(self, browser, client):
        page = Page(browser, client.port, "en")
        page.edit(CHATS["en"]["persona"])
        client.service.sessions.chats.clear()
        page.one("#message").send_keys(CHATS["en"]["query"], Keys.ENTER)
        page.wait(lambda: page.lines("error") and page.ready())
        assert "forgotten" in page.lines("error")[0]
        page.one("#message").clear()
        assert page.say(CHATS["en"]["query"]) == CHATS["en"]["reply"], "with the same persona"

    def test_two_visitors(self, browser, client):
        """Two windows, two personas, two chats."""
        page = Page(browser, client.port, "en")
        page.edit(["i live in rome."])
        first = browser.current_window_handle
        browser.switch_to.new_window("window")
        try:
            other = Page(browser, client.port)
            other.edit(["i live in oslo."])
            assert other.say("where do you live?") == "my home is in oslo."
            browser.switch_to.window(first)
            assert page.say("where do you live?") == "my home is in rome."
            assert page.lines("visitor") == ["where do you live?"]
        finally:
            for window in set(browser.window_handles) - {first}:
                browser.switch_to.window(window)
                browser.close()
            browser.switch_to.window(first)
