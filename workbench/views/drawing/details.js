// The panel that explains a token: where it is, a sentence, what its advantage is the sum of, what it would be under other
// schemes, and behind folds every number.

/** @import { SchemePayload } from "../payloads.d.ts" */
/** @import { Credited, Measure, Place, Prepared, Why } from "./payload.js" */

import { el } from "../dom.js";
import { number, percent, score, signed } from "../numbers.js";
import { WRONG } from "./cards.js";
import { isLeftOut } from "./copies.js";
import { tint } from "./measures.js";
import { nameOf } from "./rows.js";
import { sentence } from "./said.js";
import { observationAt, OBSERVED } from "./turns.js";
import { facts, quoted, remarks, termName, termsOf, whyAt, whyTable } from "./why.js";

const MOST_PARTS = 24; // terms in the table of parts; all are behind its fold
const STEP_TEXT = 80; // characters of a step
const SAME = 1e-9;
const WITH_ANSWER = "answer"; // what stands among other schemes for this one with the final answer counted
const KEYS = [["↑ ↓", "step"], ["← →", "rollout"], [", .", "token"], ["Esc", "close"]];

/**
 * @typedef {Object} Panel
 * @property {() => void} onUnpin
 * @property {(rollout: Credited, which: "a" | "b") => void} ask gets the terms that the payload did not bring
 * @property {HTMLElement | null} loss the token in the loss
 * @property {Set<string>} unfolded the folds that are open
 *
 * @param {Prepared} data @param {Place} pinned @param {Measure} measure @param {Panel} panel
 */
export function pinnedDetails(data, { g, t }, measure, { onUnpin, ask, loss, unfolded }) {
  const rollout = data.rollouts[g];
  const rows = facts(rollout, t, measure).flatMap(({ name, value, shown }) => [
    el("dt", { class: shown ? "shown" : null }, name),
    el("dd", { class: shown ? "shown" : null }, value),
  ]);
  const top = head(rollout, nameOf(data, g), t, onUnpin);
  const known = el("dl", {}, ...rows);
  if (observationAt(rollout, t)) {
    return [top, el("div", { class: "body" }, el("p", { class: "unsampled" }, OBSERVED), known)];
  }
  const isPlain = Boolean(data.measures) || !rollout.advantages; // a watched row: numbers alone
  const both = rollout.twin && data.other ? rollout.twin : null;
  const reasons = [reason(data, data, rollout, t, both ? "A " : "", () => ask(rollout, "a"))];
  if (both && data.other) reasons.push(reason(data, data.other, both, t, "B ", () => ask(both, "b")));
  const sums = [sumOf(data, rollout, t), both && data.other ? sumOf(data.other, both, t) : null];
  const logged = remarks(rollout, rollout.stepOf[t]);
  const said = logged.length ? [el("div", { class: "remarks" }, ...logged)] : [];
  const keys = KEYS.flatMap(([key, what]) => [el("kbd", {}, key), ` ${what} `]);
  return [
    top,
    el(
      "div",
      { class: "body", tabindex: 0, role: "group", "aria-label": "Explanation" },
      ...reasons,
      isPlain ? null : underOthers(data, rollout, t),
      isPlain ? null : probability(rollout, t),
      ...said,
      isPlain ? known : fold("Every number", unfolded, known, ...sums),
      loss ? fold("In the loss", unfolded, loss) : null,
      el("p", { class: "keys" }, ...keys),
    ),
  ];
}

/** The scheme of the advantages that a file brings. */
const LOGGED = "logged";

/** @param {string} name @param {Set<string>} unfolded @param {...(Node | null)} children A fold that stays as it is left. */
function fold(name, unfolded, ...children) {
  const details = el("details", { open: unfolded.has(name) }, el("summary", {}, name), ...children);
  details.addEventListener("toggle", () => details.open ? unfolded.add(name) : unfolded.delete(name));
  return details;
}

/** @param {Credited} rollout @param {string} name @param {number} t @param {() => void} onUnpin */
function head(rollout, name, t, onUnpin) {
  const k = rollout.stepOf[t];
  const outside = observationAt(rollout, t)?.role ?? "outside every step";
  const where = `${name} · ${k < 0 ? outside : `step ${k + 1}`} · token ${t} `;
  const close = { type: "button", class: "close", "aria-label": "Unpin", title: "Close (Esc)", onclick: onUnpin };
  return el(
    "header",
    {},
    el("span", { class: "where" }, where, el("code", {}, quoted(rollout.texts[t]))),
    el("button", close, "Close"),
  );
}

/**
 * The sentence and the parts of one token under one scheme.
 * @param {Prepared} data @param {Partial<SchemePayload>} scheme @param {Credited} rollout @param {number} t
 * @param {string} letter @param {() => void} ask
 */
function reason(data, scheme, rollout, t, letter, ask) {
  if (!rollout.advantages) return null;
  const title = letter ? el("h4", {}, `${letter}${scheme.scheme}`) : null;
  if (scheme.scheme === LOGGED) {
    return el(
      "div",
      { class: "reason" },
      title,
      el("p", {}, `The file gives this token ${signed(rollout.advantages[t], 2)}.`),
    );
  }
  const why = whyAt(rollout, t);
  if (!why) {
    ask();
    return null;
  }
  const clipped = why.clip !== null && Math.abs(why.total) > why.clip
    ? el("p", {}, `clipped to ±${score(why.clip)}: the advantage is ${signed(rollout.advantages[t], 4)}`)
    : null;
  return el(
    "div",
    { class: "reason" },
    title,
    why.said.length ? el("p", { class: "sentence" }, ...sentence(why.said, () => null)) : null,
    isLeftOut(scheme, rollout) ? el("p", {}, `left out: rollout ${(rollout.copyOf ?? 0) + 1} counts for it`) : null,
    partsTable(data, rollout, why, t),
    ...poolSaid(rollout, why),
    clipped,
  );
}

/** @param {Partial<SchemePayload>} scheme @param {Credited} rollout @param {number} t The formula, and every term's numbers. */
function sumOf({ scheme, formula }, rollout, t) {
  const why = whyAt(rollout, t);
  if (!why) return null;
  const name = el("p", { class: "formula" }, el("b", {}, scheme), ` ${formula}`);
  return el("div", { class: "sum-of" }, name, whyTable(rollout, why));
}

/** @param {Prepared} data @param {Credited} rollout @param {Why} why @param {number} t What each step adds to the token. */
function partsTable(data, rollout, why, t) {
  const terms = termsOf(rollout, why);
  const isWrong = (/** @type {number | null} */ k) => k !== null && rollout.wrong?.[k];
  const rows = terms.slice(0, MOST_PARTS).map((term) =>
    el(
      "tr",
      { class: isWrong(term.step) ? "wrong" : null },
      el(
        "th",
        { scope: "row", colspan: term.step === null ? 2 : null },
        isWrong(term.step) ? el("b", { class: "sign" }, `${WRONG} `) : null,
        term.step === null ? termName(term) : term.step + 1,
      ),
      term.step === null ? null : el("td", { class: "of" }, stepTextOf(rollout, term.step)),
      el("td", {}, term.reward === null ? "" : score(term.reward)),
      el("td", {}, signed(term.value, 3)),
    )
  );
  if (terms.length > MOST_PARTS) {
    const rest = terms.slice(MOST_PARTS).reduce((sum, { value }) => sum + value, 0);
    const name = `${terms.length - MOST_PARTS} more`;
    rows.push(el("tr", {}, el("th", { scope: "row", colspan: 3 }, name), el("td", {}, signed(rest, 3))));
  }
  const advantage = rollout.advantages?.[t] ?? 0;
  const limit = Math.max(
    ...data.rollouts.flatMap(({ steps, advantages }) =>
      (steps ?? []).map(({ last }) => Math.abs(advantages?.[last] ?? 0))
    ),
  );
  const colour = tint(advantage, limit, { signed: true });
  return el(
    "table",
    { class: "parts", "aria-label": "What the advantage is the sum of" },
    el(
      "thead",
      {},
      el("tr", {}, ...["step", "", "reward", "counts for"].map((name) => el("th", { scope: "col" }, name))),
    ),
    el("tbody", {}, ...rows),
    el(
      "tfoot",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "row", colspan: 3 }, terms.length ? "advantage" : "nothing is added to this token"),
        el("td", {}, el("span", { class: colour }, signed(advantage, 3))),
      ),
    ),
  );
}

/** @param {Credited} rollout @param {number} k A step's own words on one line, without what the pattern found it by. */
function stepTextOf({ steps, texts, matches }, k) {
  const step = steps?.[k];
  const found = step && matches?.find(([start, end]) => start === step.start && end < step.end);
  const text = step ? texts.join("").slice(found?.[1] ?? step.start, step.end).replaceAll(/\s+/g, " ").trim() : "";
  return text.length > STEP_TEXT ? `${text.slice(0, STEP_TEXT)}…` : text;
}

/** @param {Credited} rollout @param {Why} why What turns a reward into a part, where it is the same for every step. */
function poolSaid(rollout, why) {
  const terms = termsOf(rollout, why).filter(({ step, mean }) => step !== null && mean !== null);
  const [first] = terms;
  const isOne = terms.every(({ mean, std, factor }) => mean === first.mean && std === first.std && factor === 1);
  if (!first || !isOne || terms.some(({ raw, reward }) => reward === null || Math.abs(raw - reward) > SAME)) return [];
  const divided = first.std === null ? "" : ` ÷ ${number(first.std, 3)}`;
  const [open, close] = divided ? ["(", ")"] : ["", ""];
  const less = `${first.mean !== null && first.mean < 0 ? "+" : "−"} ${number(Math.abs(first.mean ?? 0), 3)}`;
  return [
    el(
      "p",
      {},
      `A step counts for ${open}reward ${less}${close}${divided}, how far it lies from the ${first.centre}.`,
    ),
  ];
}

/** @param {Prepared} data @param {Credited} rollout @param {number} t The step's advantage under other schemes. */
function underOthers({ scheme }, { under, stepOf }, t) {
  const k = stepOf[t];
  const parts = Object.entries(under ?? {}).flatMap(([name, values]) => {
    if (values[k] === undefined) return [];
    const how = name === WITH_ANSWER ? ["with the final answer counted "] : [el("code", {}, name), " "];
    return [" · ", ...how, el("b", {}, signed(values[k], 2))];
  });
  return parts.length
    ? el("p", { class: "under", title: `Here: ${scheme}` }, "Under other schemes: ", ...parts.slice(1))
    : null;
}

/** @param {Credited} rollout @param {number} t How likely the token was, and the least likely one of its step. */
function probability({ logprobs, texts, steps, stepOf }, t) {
  if (!logprobs) return null;
  const step = steps?.[stepOf[t]];
  const said = (/** @type {number} */ at) => {
    const p = Math.exp(logprobs[at]);
    return p < 0.001 ? "under 0.1 %" : p > 0.9995 ? "over 99.9 %" : p < 0.1 ? `${number(100 * p, 1)} %` : percent(p);
  };
  const least = step ? leastLikely({ logprobs }, step) : t;
  const other = least === t
    ? []
    : ["; the step’s least likely one, ", el("code", {}, quoted(texts[least])), ", ", said(least)];
  return el("p", { class: "probability" }, "The policy gave this token ", el("b", {}, said(t)), ...other, ".");
}

/** @param {Pick<Credited, "logprobs">} rollout @param {{ first: number, last: number }} step The token of a step that the policy gave the least probability; the last where that is not known. */
export function leastLikely({ logprobs }, { first, last }) {
  let least = logprobs ? first : last;
  for (let t = first; logprobs && t <= last; t++) if (logprobs[t] < logprobs[least]) least = t;
  return least;
}
