"use strict";
// Shows a reply's words by source. Texts reach the page through textContent alone.

// A new element with a class and a text.
function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

const percent = (value) => `${Math.round(100 * value)}%`;

// Indices in the provenance count characters; JavaScript's strings count UTF-16 units.
const cut = (characters, start, end) => characters.slice(start, end).join("");

// What a span's origin is called.
function originOf(span, texts) {
  if (span.from === "persona") return texts.fromPersona.replace("{}", span.sentence + 1);
  return span.from === "query" ? texts.fromQuery : texts.generated;
}

// The reply with one button for each span, which shows its weights when pointed at or focused.
function paintedReply(reply, provenance, texts) {
  const group = make("span");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", `${texts.words}: ${reply}`);
  const characters = Array.from(reply);
  let at = 0;
  for (const span of provenance.spans) {
    group.append(cut(characters, at, span.start));
    const word = make("button", `word ${span.from}`, span.text);
    word.type = "button";
    word.setAttribute("aria-label", `${span.text}: ${originOf(span, texts)}, ${percent(span.share)}`);
    const show = () => showTip(word, span, provenance, texts);
    word.addEventListener("mouseenter", show);
    word.addEventListener("focus", show);
    word.addEventListener("mouseleave", hideTip);
    word.addEventListener("blur", hideTip);
    group.append(word);
    at = span.end;
  }
  group.append(cut(characters, at));
  return group;
}

// The places of a span's source words in its sentence.
function sourcesOf(span, provenance) {
  const found = [];
  for (const token of provenance.tokens) {
    if (token.start < span.start || token.end > span.end || token.start === token.end) continue;
    for (const source of token.sources) {
      const mine = source.from === span.from && source.sentence === span.sentence;
      if (mine && source.probability > 0.05 * token.probability) found.push(source);
    }
  }
  return found;
}

// A sentence with the source words marked.
function marked(sentence, sources) {
  const characters = Array.from(sentence), line = make("span");
  const inside = new Set();
  for (const source of sources) {
    for (let i = source.start; i < source.end; i++) inside.add(i);
  }
  let begin = 0;
  for (let i = 1; i <= characters.length; i++) {
    if (i < characters.length && inside.has(i) === inside.has(begin)) continue;
    const text = cut(characters, begin, i);
    line.append(inside.has(begin) ? make("mark", "", text) : text);
    begin = i;
  }
  return line;
}

function showTip(word, span, provenance, texts) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(make("p", "", `${originOf(span, texts)}, ${percent(span.share)}`));
  if (span.sentence !== null) {
    const sources = sourcesOf(span, provenance);
    const line = make("p");
    line.append(marked(provenance[span.from][span.sentence], sources));
    tip.append(line);
    if (span.from === "persona") markPersona(span.sentence, sources);
  }
  tip.append(weightTable(span, provenance, texts));
  tip.hidden = false;
  word.setAttribute("aria-describedby", "tip");
  const place = word.getBoundingClientRect(), size = tip.getBoundingClientRect();
  const above = place.top - size.height - 6;
  tip.style.left = `${Math.max(8, Math.min(place.left, window.innerWidth - size.width - 8))}px`;
  tip.style.top = `${above > 8 ? above : place.bottom + 6}px`;
}

// One row a token: the probability that the model used, and its three parts.
function weightTable(span, provenance, texts) {
  const table = make("table"), parts = ["generated", "query", "persona"];
  const head = table.createTHead().insertRow(), body = table.createTBody();
  head.append(make("th"), ...parts.map((part) => make("th", "", texts[`part_${part}`])));
  for (const token of provenance.tokens) {
    if (token.start < span.start || token.end > span.end || token.start === token.end) continue;
    const row = body.insertRow();
    row.append(make("th", "", token.text));
    for (const part of parts) row.append(make("td", "", token[part].toFixed(3)));
  }
  return table;
}

function hideTip() {
  document.getElementById("tip").hidden = true;
  markPersona(null, []);
}

// Mark words of a sentence in the persona beside the chat, as long as it is the same persona.
function markPersona(sentence, sources) {
  document.querySelectorAll("#persona li").forEach((line, number) => {
    const here = number === sentence ? sources : [];
    line.replaceChildren(marked(line.textContent, here));
  });
}
