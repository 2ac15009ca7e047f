// The page that reviewers see. Text of items reaches it only through textContent.
"use strict";

const SECONDS = 15; // between two looks for new work
const ASPECTS = ["fluency", "relevance", "consistency"];
const VALUES = { scales: [0, 1, 2], pairs: ["a", "equal", "b"] };
const KEYS = { scales: ["0", "1", "2"], pairs: ["1", "2", "3"] };

const byId = (id) => document.getElementById(id);
let form, texts, words;
let redraw = () => {}; // draws the current view again, in the other language

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

function say(text, isError = false) {
  byId("status").textContent = text;
  byId("status").className = isError ? "error" : "";
}

function show(...elements) {
  byId("view").replaceChildren(...elements);
  window.scrollTo(0, 0);
}

// Control characters would be invisible: their pictures stand for them.
function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (char) =>
    char === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + char.charCodeAt(0)),
  );
}

function textBox(text, kind = "") {
  const isEmpty = text.trim() === "";
  return make("p", {
    className: `text ${kind} ${isEmpty ? "empty" : ""}`,
    dir: "auto",
    textContent: isEmpty ? words.empty : visible(text),
  });
}

function sample(item) {
  const persona = item.persona.length
    ? item.persona.map((sentence) => textBox(sentence, "persona"))
    : [make("p", { className: "text empty", textContent: words.no_persona })];
  const two = item.replies.length === 2;
  const replies = item.replies.map((reply, index) =>
    make(
      "section",
      {},
      make("h2", { textContent: two ? [words.reply_a, words.reply_b][index] : words.reply }),
      textBox(reply, "reply"),
    ),
  );
  return [
    make("h2", { textContent: words.persona }),
    ...persona,
    make("h2", { textContent: words.query }),
    textBox(item.query, "query"),
    make("div", { className: `replies ${two ? "two" : ""}` }, ...replies),
  ];
}

// One question an aspect. `answers` is filled in as the reviewer chooses.
function questions(answers) {
  return ASPECTS.map((aspect) => {
    const question = words.questions[form][aspect];
    const choices = VALUES[form].map((value, index) => {
      const input = make("input", {
        type: "radio",
        name: aspect,
        value: String(value),
        checked: answers[aspect] === value,
        onchange: () => {
          answers[aspect] = value;
          mark(answers);
        },
      });
      const label = make("span", { textContent: question.values[value] });
      const key = make("span", { className: "value", textContent: KEYS[form][index] });
      return make("label", { className: "choice" }, input, key, label);
    });
    const legend = make("legend", { textContent: `${question.name}: ${question.question}` });
    return make("fieldset", { id: aspect }, legend, ...choices);
  });
}

function current(answers) {
  return ASPECTS.find((aspect) => answers[aspect] === undefined);
}

function mark(answers) {
  for (const aspect of ASPECTS) {
    byId(aspect).classList.toggle("current", aspect === current(answers));
  }
}

// Show one item with its questions; `send` gets the complete answers.
function ask(item, heading, buttonText, send, answers = {}) {
  redraw = () => ask(item, heading, buttonText, send, answers);
  const button = make("button", { className: "main", textContent: buttonText(), type: "submit" });
  const sheet = make(
    "form",
    { className: "sheet", id: "sheet" },
    ...heading(),
    ...sample(item),
    ...questions(answers),
    button,
    make("p", {
      className: "hint",
      textContent: fill(words.keys, { keys: KEYS[form].join(" ") }),
    }),
  );
  sheet.onsubmit = (event) => {
    event.preventDefault();
    if (button.disabled) return;
    const missing = current(answers);
    if (missing) {
      say(fill(words.incomplete, { total: ASPECTS.length }), true);
      byId(missing).querySelector("input").focus();
      return;
    }
    button.disabled = true;
    const release = () => (button.disabled = false);
    send(Object.fromEntries(ASPECTS.map((aspect) => [aspect, answers[aspect]])), release);
  };
  document.onkeydown = (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || button.disabled) return;
    const choice = KEYS[form].indexOf(event.key);
    if (choice >= 0) {
      const fieldset = document.activeElement.closest("fieldset");
      const aspect = fieldset ? fieldset.id : current(answers) || ASPECTS.at(-1);
      byId(aspect).querySelectorAll("input")[choice].click();
      const next = current(answers);
      const target = next ? byId(next).querySelector("input") : button;
      target.focus({ preventScroll: true });
      target.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    } else if (event.key === "Enter" && event.target !== byId("language")) {
      event.preventDefault();
      sheet.requestSubmit();
    }
  };
  show(sheet);
  mark(answers);
}

function message(name, values = {}) {
  document.onkeydown = null;
  redraw = () => message(name, values);
  show(make("p", { className: "message", id: name, textContent: fill(words[name], values) }));
}

// The examples, one by one; each must be answered rightly.
function onboard(examples) {
  return new Promise((done) => {
    const total = examples.length;
    const given = [];
    const next = () => {
      const number = given.length;
      if (number === total) return done(given);
      const heading = () => [
        ...(number ? [] : [make("p", { textContent: introduction() })]),
        make("p", { textContent: fill(words.onboarding, { total }) }),
        make("p", { className: "hint", textContent: fill(words.example, { number: number + 1, total }) }),
      ];
      ask(examples[number][language()], heading, () => words.check, (answers, release) => {
        const example = examples[number][language()];
        const right = ASPECTS.every((aspect) => answers[aspect] === example.answers[aspect]);
        say(fill(right ? words.right : words.wrong, example), !right);
        if (!right) return release();
        given.push(answers);
        next();
      });
    };
    next();
  });
}

const introduction = () => (form === "pairs" ? words.intro_pairs : words.intro);
const language = () => document.documentElement.lang;

function progress({ done, total }) {
  byId("bar").hidden = false;
  byId("bar-done").style.width = `${(100 * done) / Math.max(total, 1)}%`;
  return fill(words.progress, { done, total });
}

function rate(data) {
  return new Promise((done) => {
    const heading = () => [
      make("p", { id: "progress", className: "hint", textContent: progress(data.progress) }),
    ];
    ask(data.item, heading, () => words.submit, async (answers) => {
      say(words.sending);
      const send = { item: data.item.id, answers };
      done(await Server.submit(send, () => say(words.resending, true)));
    });
  });
}

// Ask for work, show it, send it, again and again.
async function work() {
  for (let notQualified = 0; ; ) {
    let data;
    try {
      data = await Server.ask();
    } catch (error) {
      say("");
      message("unreachable", { seconds: SECONDS });
      await Server.wait(SECONDS);
      continue;
    }
    let task = data.init_task_data;
    if (task && task.examples) {
      const answers = await onboard(task.examples);
      data = await Server.submitOnboarding(answers).catch(() => ({}));
      task = data.init_task_data;
    }
    if (task && task.duplicate) {
      if (!Server.isPilot) return message("returned");
      Server.forget();
    } else if (task && task.accepted) {
      Server.leave(); // it was saved just before the page was loaded again
      if (!Server.isPilot) return;
    } else if (task && task.item && !task.refused) {
      notQualified = 0;
      const result = await rate(task);
      if (result.accepted) {
        say(words.saved);
        progress(result.progress);
        Server.leave();
        if (!Server.isPilot) return;
      } else {
        say(fill(words.not_saved, { reason: result.refused || words.restarted }), true);
        if (result.refused) Server.forget();
      }
    } else {
      // Mephisto says "not qualified" also when onboarding is passed and nothing is left
      const reason = data.failure_reason || "";
      Server.forget();
      if (reason.includes("not currently qualified") && ++notQualified > 1) {
        return message("blocked");
      }
      if (reason.includes("no available work")) {
        message("wait", { seconds: SECONDS });
        await Server.wait(SECONDS);
      } else {
        await Server.wait(1);
      }
    }
  }
}

function askName() {
  redraw = askName;
  const input = make("input", { type: "text", name: "worker_id", required: true, maxLength: 64 });
  const label = make("label", { className: "name", textContent: words.name }, make("br"), input);
  show(
    make(
      "form",
      { method: "get" },
      make("p", { textContent: introduction() }),
      label,
      make("p", { className: "hint", textContent: words.name_hint }),
      make("button", { className: "main", textContent: words.begin }),
    ),
  );
  input.focus();
}

function speak(name) {
  words = texts[name];
  document.documentElement.lang = name === "zh" ? "zh" : "en";
  document.title = byId("title").textContent = words.title;
  byId("language").textContent = words.language;
}

async function start() {
  texts = await (await fetch("texts.json")).json();
  const config = await (await fetch("task_config.json?mephisto_task_version=2.0.3")).json();
  form = config.form;
  speak(config.language);
  byId("language").onclick = () => {
    speak(language() === "zh" ? "en" : "zh");
    redraw();
  };
  if (Server.isPreview) {
    show(
      make("p", { textContent: introduction() }),
      make("p", { textContent: words.preview }),
    );
  } else if (!Server.worker) {
    askName();
  } else {
    await work();
  }
}

start();
