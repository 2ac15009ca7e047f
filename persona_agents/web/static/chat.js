"use strict";
// The chat: sends what the visitor says, shows what comes back. Uses the JSON endpoint alone.

const $ = (name) => document.getElementById(name);
const state = { language: "en", session: null, persona: [], entries: [], waiting: false };
const texts = () => TEXTS[state.language];

// POST to the JSON endpoint; throws an error with the server's code.
async function post(path, data) {
  let response, answer;
  try {
    response = await fetch(`/api/${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(data),
    });
    answer = await response.json();
  } catch {
    throw Object.assign(new Error("network"), { code: "network" });
  }
  if (!response.ok) throw Object.assign(new Error(answer.error.message), { code: answer.error.code });
  return answer;
}

// ---- what is shown

function translate() {
  document.documentElement.lang = state.language;
  document.title = texts().title;
  for (const element of document.querySelectorAll("[data-text]")) {
    element.textContent = texts()[element.dataset.text];
  }
  for (const element of document.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", texts()[element.dataset.label]);
  }
  for (const button of document.querySelectorAll("[data-language]")) {
    button.setAttribute("aria-pressed", String(button.dataset.language === state.language));
  }
  for (const label of document.querySelectorAll("#searches label span")) {
    label.textContent = texts()[label.dataset.search] || label.dataset.search;
  }
  hideTip();
  $("log").replaceChildren(...state.entries.map(entryElement));
  showPersona(state.persona);
}

// One line of the chat: {kind: "visitor" | "model" | "notice" | "error", …}
function entryElement(entry) {
  const line = make("li", entry.kind);
  if (entry.kind === "notice") line.textContent = texts()[entry.text];
  if (entry.kind === "error") line.textContent = texts().errors[entry.code] || texts().errors.other;
  if (entry.kind === "visitor" || entry.kind === "model") {
    line.append(make("span", "who", texts()[entry.kind]));
    if (entry.provenance) {
      line.append(paintedReply(entry.text, entry.provenance, texts()));
    } else {
      line.append(make("span", "", entry.text ?? texts().noReply));
    }
  }
  return line;
}

function add(entry) {
  state.entries.push(entry);
  const line = entryElement(entry);
  $("log").append(line);
  $("log").scrollTop = $("log").scrollHeight;
  if (entry.kind !== "visitor") $("news").textContent = spoken(entry, line);
}

// What a screen reader says of a new line.
function spoken(entry, line) {
  return entry.kind === "model" ? `${texts().model}: ${entry.text ?? texts().noReply}` : line.textContent;
}

function showPersona(persona) {
  state.persona = persona;
  const lines = persona.map((sentence) => make("li", "", sentence));
  $("persona").replaceChildren(...lines);
  if (!lines.length) $("persona").append(texts().none);
}

function fillEditor(persona) {
  $("editor").value = persona.join("\n");
}

const edited = () => $("editor").value.split("\n").map((line) => line.trim()).filter(Boolean);
const isEdited = () => edited().join("\n") !== state.persona.join("\n");

function wait(waiting) {
  state.waiting = waiting;
  for (const name of ["send", "use", "draw", "reset"]) $(name).disabled = waiting;
  $("log").setAttribute("aria-busy", String(waiting));
}

// ---- what is done

// Run one action at a time; errors are shown, a forgotten chat is begun anew.
async function act(action) {
  if (state.waiting) return;
  wait(true);
  try {
    await action();
  } catch (error) {
    if (!error.code) throw error;
    add({ kind: "error", code: error.code });
    if (error.code === "session") await begin(state.persona);
  } finally {
    wait(false);
  }
}

async function begin(persona) {
  const answer = await post("session", persona ? { persona } : {});
  state.session = answer.session;
  $("draw").hidden = !answer.can_draw;
  showPersona(answer.persona);
  return answer;
}

async function say() {
  const message = $("message").value.trim();
  if (!message) return;
  const data = { session: state.session, message };
  const search = document.querySelector("#searches input:checked");
  if (search) data.search = search.value;
  if (isEdited()) data.persona = edited();
  add({ kind: "visitor", text: message });
  $("message").value = "";
  try {
    const answer = await post("chat", data);
    if (answer.persona.join("\n") !== state.persona.join("\n")) {
      showPersona(answer.persona);
      fillEditor(answer.persona);
    }
    add({ kind: "model", text: answer.reply, provenance: answer.provenance });
    if (answer.provenance) $("legend").hidden = false;
  } catch (error) {
    $("message").value = message;
    throw error;
  }
}

async function changePersona(data) {
  const answer = await post("persona", { session: state.session, ...data });
  showPersona(answer.persona);
  fillEditor(answer.persona);
  add({ kind: "notice", text: answer.reset ? "newChat" : "newPersona" });
}

async function newChat() {
  await post("reset", { session: state.session });
  state.entries = [];
  $("log").replaceChildren();
  add({ kind: "notice", text: "newChat" });
}

function addSearches(names) {
  names.forEach((name, number) => {
    const label = make("label"), input = make("input");
    input.type = "radio";
    input.name = "search";
    input.value = name;
    input.checked = number === 0;
    const text = make("span");
    text.dataset.search = name;
    label.append(input, " ", text);
    $("searches").append(label);
  });
  $("searches").hidden = names.length < 2;
}

function setLanguage(language) {
  state.language = language;
  try {
    localStorage.setItem("language", language);
  } catch { /* a browser that keeps nothing */ }
  translate();
}

async function start() {
  let kept = null;
  try {
    kept = localStorage.getItem("language");
  } catch { /* as above */ }
  translate();
  await act(async () => {
    const answer = await begin(null);
    fillEditor(answer.persona);
    addSearches(answer.searches);
    state.language = kept in TEXTS ? kept : answer.language;
    translate();
  });
}

$("say").addEventListener("submit", (event) => {
  event.preventDefault();
  act(say).then(() => $("message").focus());
});
$("message").addEventListener("keydown", (event) => {
  // Enter also ends the composition of a Chinese character: that is no sending
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  $("say").requestSubmit();
});
$("use").addEventListener("click", () => act(() => changePersona({ persona: edited() })));
$("draw").addEventListener("click", () => act(() => changePersona({ draw: true })));
$("reset").addEventListener("click", () => act(newChat));
for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => setLanguage(button.dataset.language));
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
start();
