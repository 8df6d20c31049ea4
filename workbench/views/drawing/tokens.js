// A token as an element whose text is the token's own, cut where a step or a match begins inside it.
//
// The <pre> of a rollout has exactly the completion as its textContent: arrows for line ends, marks for invisible
// characters and the end-of-sequence sign are drawn by the style sheet.

/** @import { GroupPayload, SchemePayload, StepPayload, TurnPayload } from "../payloads.d.ts" */
/** @import { Credited, Prepared } from "./payload.js" */
/** @typedef {{ at: number, order: number, step?: number, match?: boolean }} Cut what changes at an offset of the text */
/** @typedef {{ text: string, match: boolean, astray: boolean, opens: number | null }} Part */

import { el } from "../dom.js";

export const TOKEN_CHARACTERS = 20000; // of one token; the rest is in the full text

// Characters that would otherwise be invisible or would reorder their neighbours.
export const INVISIBLE =
  // deno-lint-ignore no-control-regex -- these are the characters looked for
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/;
const SPECIAL = new RegExp(`[\\n\\r\\t\\ufffd]|[\\ud800-\\udfff]|${INVISIBLE.source}`);
const FOREIGN = /[\u0300-\uffff]/; // may run from right to left: it is kept from reordering its neighbours
const WIDE = /[\u2e80-\uffef]|\p{Extended_Pictographic}/gu; // about as wide as two letters
const LONGEST_LINE = 80; // characters that a card is made wide enough for
const READABLE_LINE = 56;
const SURROGATE = /^[\ud800-\udfff]$/;
const NAMED = { "\n": "nl", "\t": "tab", "\ufffd": "bad" };

/**
 * Adds what follows from the payload: character offsets of tokens, and the step each token belongs to.
 * @param {GroupPayload} payload @returns {Prepared}
 */
export function prepare(payload) {
  const data = /** @type {Prepared} */ (/** @type {unknown} */ (payload));
  const isWrong = wrongBy(data);
  for (const rollout of data.rollouts) {
    const { texts, twin, before } = rollout;
    if (data.measures) rollout.measures = data.measures;
    rollout.offsets = new Int32Array(texts.length + 1);
    for (let t = 0; t < texts.length; t++) rollout.offsets[t + 1] = rollout.offsets[t] + texts[t].length;
    rollout.stepOf = new Int32Array(texts.length).fill(-1);
    rollout.wrong = rollout.steps?.map(isWrong);
    rollout.later = laterOf(rollout.steps, data);
    rollout.steps?.forEach((step, k) => rollout.stepOf.fill(k, step.first, step.last + 1));
    if (rollout.turns) rollout.observed = observedIn(rollout.turns, texts.length);
    if (before) rollout.twin = { ...rollout, ...before, twin: null };
    const later = laterOf(twin?.steps, data.other);
    if (twin) rollout.twin = { ...rollout, ...twin, later, why: twin.why, terms: twin.terms, twin: null };
  }
  return data;
}

/**
 * What calls a step wrong: a label by hand, else the reward that says right or wrong, or a watched row's label.
 * @param {Prepared} data @returns {(step: StepPayload) => string}
 */
function wrongBy({ rewards, judges }) {
  const name = judges?.step ?? null;
  return ({ reward, scores, label }) => {
    if (typeof label === "boolean") return label ? "" : "your label";
    if (rewards === undefined) return reward !== null && reward <= 0 ? "its label" : "";
    const score = name === null ? null : scores[name] ?? null;
    return name !== null && score !== null && score < 1 ? name : "";
  };
}

/**
 * What the steps after each add to its advantage, under a scheme whose steps share what later ones earn; else undefined.
 * @param {Pick<StepPayload, "normalised">[] | undefined} steps @param {Partial<SchemePayload>} [scheme]
 */
export function laterOf(steps = [], { carry, options } = {}) {
  if (carry !== "suffix" && carry !== "mean") return undefined;
  const gamma = Number(options?.gamma ?? 1);
  let [sum, scored] = [0, 0];
  return steps.map(({ normalised }) => normalised).toReversed().map((own) => {
    if (own !== null) scored++;
    const later = gamma * sum;
    sum = (own ?? 0) + later;
    return later / (carry === "mean" ? Math.max(scored, 1) : 1);
  }).toReversed();
}

/**
 * How many characters wide a card's text is: as its longest line, or a width to read at where no card could hold that.
 * @param {Pick<Prepared, "rollouts">} data
 */
export function lineWidth({ rollouts }) {
  let longest = 0;
  for (const { texts, stepOf, observed } of rollouts) {
    let line = 0;
    for (let t = 0; t < texts.length; t++) {
      if (observed?.[t]) continue; // folds, or wraps
      if (stepOf[t] !== stepOf[t - 1]) line = 0;
      texts[t].replace(WIDE, "  ").replaceAll("\t", "     ").split("\n").forEach((part, i) => {
        line = (i ? 0 : line) + part.length;
        longest = Math.max(longest, line);
      });
    }
  }
  return 1 + (longest > LONGEST_LINE ? READABLE_LINE : longest); // the sign at its end
}

/** @param {TurnPayload[]} turns @param {number} length */
function observedIn(turns, length) {
  const observed = new Uint8Array(length);
  for (const { sampled, start, end } of turns) if (!sampled) observed.fill(1, start, end);
  return observed;
}

/**
 * A text as runs of characters: plain ones (kind ""), and each special one by itself.
 * @param {string} text @returns {{ kind: string, text: string }[]}
 */
export function runsOf(text) {
  if (!SPECIAL.test(text)) return [{ kind: "", text }];
  const runs = [];
  let plain = "";
  for (const character of text) {
    const kind = kindOf(character);
    if (!kind) {
      plain += character;
      continue;
    }
    if (plain) runs.push({ kind: "", text: plain });
    plain = "";
    runs.push({ kind, text: character });
  }
  return plain ? [...runs, { kind: "", text: plain }] : runs;
}

/** @param {string} character */
function kindOf(character) {
  const named = NAMED[/** @type {keyof typeof NAMED} */ (character)];
  if (named) return named;
  return character === "\r" || INVISIBLE.test(character) || SURROGATE.test(character) ? "hidden-character" : "";
}

/** @param {Element} parent @param {string} text Adds a text whose special characters get an element each. */
function appendText(parent, text) {
  const left = text.length - TOKEN_CHARACTERS;
  for (const run of runsOf(left > 0 ? text.slice(0, TOKEN_CHARACTERS) : text)) {
    if (!run.kind) parent.append(run.text);
    else if (run.kind !== "hidden-character") parent.append(el("u", { class: run.kind }, run.text));
    else parent.append(el("u", { class: run.kind, "data-mark": codeOf(run.text) }, el("s", {}, run.text)));
  }
  if (left > 0) {
    parent.append(el("u", { class: "cut", "data-mark": `… ${left.toLocaleString("en")} more characters` }));
  }
}

/** @param {string} character */
const codeOf = (character) => `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

/** Places inside a rollout's text where something changes, walked through from its beginning. */
export class Cuts {
  /** @param {Pick<Credited, "steps" | "matches">} rollout */
  constructor({ steps, matches }) {
    /** @type {Cut[]} */
    this.cuts = [];
    steps?.forEach((step, k) => {
      this.cuts.push({ at: step.end, order: 0, step: -1 }, { at: step.start, order: 1, step: k });
    });
    for (const [start, end] of matches ?? []) {
      if (end > start) this.cuts.push({ at: start, order: 1, match: true }, { at: end, order: 0, match: false });
    }
    this.cuts.sort((a, b) => a.at - b.at || a.order - b.order);
    this.place = 0;
    this.step = -1; // in which the characters at the place are
    this.match = false; // whether they are in a match of the pattern
  }

  /** Where the next change is. */
  get next() {
    return this.cuts[this.place]?.at ?? Infinity;
  }

  /** @param {number} offset Takes in what changes at or before an offset. */
  walk(offset) {
    while (this.next <= offset) {
      const { step = this.step, match = this.match } = this.cuts[this.place++];
      this.step = step;
      this.match = match;
    }
  }
}

/**
 * A token's text, cut where a step begins or ends inside it and where a match does. Characters of a step that the token
 * as a whole does not belong to are astray; `opens` is the number of the step that begins with them.
 * @param {Credited} rollout @param {number} t @param {Cuts} cuts @returns {Part[]}
 */
export function partsOf({ steps, stepOf, offsets, texts }, t, cuts) {
  const [start, end] = [offsets[t], offsets[t + 1]];
  const parts = [];
  for (let from = start; from < end;) {
    cuts.walk(from);
    const to = Math.min(end, cuts.next);
    const astray = cuts.step >= 0 && cuts.step !== stepOf[t];
    const opens = astray && steps?.[cuts.step].start === from ? cuts.step + 1 : null;
    parts.push({ text: texts[t].slice(from - start, to - start), match: cuts.match, astray, opens });
    from = to;
  }
  return parts;
}

/** @param {Credited} rollout @param {number} t @param {Cuts} cuts */
export function tokenElement(rollout, t, cuts) {
  const { texts, twin, advantages, steps, stepOf } = rollout;
  const text = texts[t];
  const node = document.createElement("i"); // there are thousands
  node.setAttribute("data-t", String(t));
  if (advantages && twin?.advantages && advantages[t] * twin.advantages[t] < 0) node.classList.add("flips");
  if (steps?.[stepOf[t]]?.culprit === t) node.classList.add("culprit");
  if (FOREIGN.test(text)) node.classList.add("foreign");
  if (t === texts.length - 1 && rollout.finished) {
    node.dataset.mark = text || "end";
    node.classList.add("eos");
  } else if (!text) node.classList.add("empty");
  else appendParts(node, partsOf(rollout, t, cuts));
  return node;
}

/** @param {Element} node @param {Part[]} parts */
function appendParts(node, parts) {
  const [{ text, match, astray }] = parts;
  if (parts.length === 1 && !astray) {
    if (match) node.classList.add("match");
    appendText(node, text);
    return;
  }
  for (const part of parts) {
    const look = `${part.match ? "match " : ""}${part.astray ? "astray" : ""}`.trim();
    appendText(look ? node.appendChild(el("span", { class: look, "data-n": part.opens })) : node, part.text);
    if (part.astray) node.classList.add("straddles");
  }
}
