// One rollout: its header, and its text in a row a step, with what the step was given beside it.

/** @import { StepPayload } from "../payloads.d.ts" */
/** @import { Credited, Measure, Prepared } from "./payload.js" */

import { el, objectUrl } from "../dom.js";
import { count, score, signed } from "../numbers.js";
import { copyMarks, equalTo, named } from "./copies.js";
import { stepSaid, stepText, tint } from "./measures.js";
import { factText, isWatched, labelSaid, nameOf, paneTitles } from "./rows.js";
import { Cuts, TOKEN_CHARACTERS, tokenElement } from "./tokens.js";
import { errorMark, OBSERVED_TITLE, sampledLength, timeSaid, turnCount, turnElements } from "./turns.js";

export const STEPS = ".text:not(.second) .step"; // those the keyboard moves over
export const WRONG = "✕";
const LATER_TITLE = "What the steps after this one add to its advantage, as it shares what they earn";
const MANY_STEPS = 40; // of one rollout; those out of sight are laid out later
const DRAWN_TOKENS = 20000; // of one rollout; more is a button away
const DRAWN_CHARACTERS = 200000;
const KEPT_CLASSES = ["eos", "empty", "straddles", "flips", "foreign", "match", "pinned", "culprit"]; // of a token, whatever it is coloured by

/**
 * @param {Prepared} data @param {number} g @param {Measure} measure
 * @param {{ whole?: boolean, folded?: boolean, plain?: boolean }} [options] `whole`: all of a long text; `folded`: it
 *   stands for its copies; `plain`: without its tokens, which are drawn when they are near what is in sight
 */
export function card(data, g, measure, { whole = false, folded = false, plain = false } = {}) {
  const rollout = data.rollouts[g];
  const isLong = (rollout.steps?.length ?? 0) > MANY_STEPS;
  const drawn = whole ? rollout.texts.length : drawnTokens(rollout);
  const left = rollout.texts.length - drawn;
  const more = { type: "button", class: "more", "data-more": g };
  return el(
    "article",
    {
      class: `rollout${isLong ? " long" : ""}${plain ? " plain" : ""}`,
      "data-g": g,
      "aria-label": cardLabel(data, g, folded),
    },
    el(
      "header",
      {},
      el("h3", {}, rollout.name ?? `${g + 1}`),
      ...copyMarks(data, g, folded),
      ...factsOf(rollout),
      ...marksOf(rollout),
      rollout.twin ? null : columnTitles(rollout, measure),
    ),
    plain ? el("pre", { class: "text" }, plainText(rollout, drawn)) : textElements(data, rollout, drawn, measure),
    left ? el("button", more, `Draw ${left} more tokens`) : null,
    left || rollout.texts.some((text) => text.length > TOKEN_CHARACTERS) ? fullText(rollout, g) : null,
  );
}

/** @param {Prepared} data @param {number} g @param {boolean} folded */
function cardLabel(data, g, folded) {
  const name = folded ? named(equalTo(data, g)) : nameOf(data, g);
  return isWatched(data.rollouts[g]) ? name : `${name[0].toUpperCase()}${name.slice(1)} of ${data.rollouts.length}`;
}

/** @param {Element} article @returns {boolean} Whether it stands for its copies. */
export const isFolded = (article) => article.querySelector('.copies[aria-expanded="false"]') !== null;

/** @param {Credited} rollout How many of its tokens are drawn at first. */
function drawnTokens({ texts, offsets }) {
  let drawn = Math.min(texts.length, DRAWN_TOKENS);
  while (drawn > 1 && offsets[drawn] > DRAWN_CHARACTERS) drawn--;
  return drawn;
}

/** @param {Credited} rollout @param {number} drawn tokens */
const plainText = ({ texts, finished }, drawn) =>
  texts.slice(0, Math.min(drawn, texts.length - (finished ? 1 : 0))).join(""); // the end-of-sequence sign is no text

/** @param {Credited} rollout */
function factsOf({ steps, outcome, texts, facts, right, remark, turns, extracted }) {
  const fact = (/** @type {string} */ name, /** @type {string} */ value, /** @type {string} */ title = "") =>
    el("span", { class: "fact", title: title || null }, el("em", {}, name), value);
  const observed = texts.length - sampledLength({ texts, turns });
  const isJudged = (right ?? null) !== null;
  const verdict = isJudged ? `${right ? "✓ right" : "⊘ wrong"}${remark ? "," : ""}` : "";
  return [
    ...(facts ?? []).map((known) => fact(known.name, factText(known))),
    verdict ? el("span", { class: "judged", title: extracted || null }, verdict) : null,
    steps && !facts && !isJudged && (outcome ?? null) !== null ? fact("R", score(outcome), "outcome reward") : null,
    remark ? el("b", { class: "remark-on" }, isJudged ? remark : remark.replace(/^yet /, "")) : null,
    extracted?.startsWith("no answer") ? el("span", { class: "fact read" }, extracted) : null,
    turns ? fact("", count(turnCount({ turns }), "turn"), timeSaid({ turns })) : null,
    observed ? fact("", `${observed} observed`, OBSERVED_TITLE) : null,
  ];
}

/** @param {Credited} rollout @param {Measure} measure What stands in the columns beside the steps. */
function columnTitles(rollout, measure) {
  if (!rollout.steps?.length) return null;
  return el(
    "span",
    { class: "cols", "aria-hidden": "true" },
    hasRewards(rollout) ? el("span", { class: "r" }, isWatched(rollout) ? "label" : "reward") : null,
    el("span", { class: "a measure" }, measure.short),
    rollout.later ? el("span", { class: "l", title: LATER_TITLE }, "later") : null,
  );
}

/** @param {Credited} rollout */
const hasRewards = (rollout) => !isWatched(rollout) || Boolean(rollout.steps?.some((step) => step.reward !== null));

/** @param {Credited} rollout */
function marksOf({ steps, matched, unsplit, finished, stop, name, turns, counted }) {
  const unmatched = unsplit
    ? "The step pattern found over 1,000 steps, or took too long: the completion stays whole and unscored"
    : "The step pattern found nothing: the whole completion counts as one step";
  return [
    steps && !matched ? el("mark", { title: unmatched }, unsplit ? "unsplit" : "no match") : null,
    errorMark(turns),
    stop ? el("span", { class: "fact", title: `Ended by the stop string ${JSON.stringify(stop)}` }, "stopped") : null,
    finished || stop || isWatched({ name }) ? null : el(
      "mark",
      { title: "No end-of-sequence token: the length limit cut it off" },
      counted === false ? "truncated, not in the loss" : "truncated",
    ),
  ];
}

// ── text ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** Two schemes, or before and now: the same text twice, each under its own name. */
/** @param {Prepared} data @param {Credited} rollout @param {number} drawn @param {Measure} measure */
function textElements(data, rollout, drawn, measure) {
  const first = textElement(rollout, drawn, measure);
  if (!rollout.twin) return first;
  const pane = (
    /** @type {string} */ place,
    /** @type {string} */ name,
    /** @type {string | undefined} */ of,
    /** @type {Element} */ text,
  ) => {
    const head = el("h4", {}, el("b", {}, name), el("span", {}, of), columnTitles(rollout, measure));
    return el("div", { class: `pane ${place}` }, head, text);
  };
  const second = textElement({ ...rollout.twin, twin: rollout }, drawn, measure);
  second.classList.add("second");
  for (const step of second.querySelectorAll(".step")) step.removeAttribute("tabindex");
  const [a, b] = paneTitles(data);
  const panes = [pane("a", ...a, first), pane("b", ...b, second)];
  return el("div", { class: "panes" }, ...(isWatched(rollout) ? panes.reverse() : panes)); // before, then now
}

/** @param {Credited} rollout @param {number} drawn @param {Measure} measure */
function textElement(rollout, drawn, measure) {
  const pre = el("pre", { class: "text" });
  const cuts = new Cuts(rollout);
  if (!rollout.turns) appendTokens(pre, rollout, 0, drawn, cuts, measure);
  else {
    for (const { node, holder, start, end } of turnElements(rollout)) {
      if (start >= drawn && drawn < rollout.texts.length) break;
      appendTokens(holder, rollout, start, Math.min(end, drawn), cuts, measure);
      pre.append(node);
    }
  }
  return pre;
}

/**
 * @param {Element} parent @param {Credited} rollout @param {number} start @param {number} end exclusive
 * @param {Cuts} cuts @param {Measure} measure
 */
function appendTokens(parent, rollout, start, end, cuts, measure) {
  let holder = /** @type {Element} */ (parent);
  for (let t = start; t < end; t++) {
    const k = rollout.stepOf[t];
    const begins = t === start || k !== rollout.stepOf[t - 1];
    if (begins && !rollout.observed?.[t]) {
      holder = el("span", { class: "tokens" });
      parent.append(rollout.steps ? stepElement(rollout, k, t, measure, holder) : holder);
    }
    holder.append(tokenElement(rollout, t, cuts));
  }
}

/**
 * A step's row, or text outside every step.
 * @param {Credited} rollout @param {number} k @param {number} t its first token here
 * @param {Measure} measure @param {Element} tokens
 */
function stepElement(rollout, k, t, measure, tokens) {
  const { steps = [], matched, offsets, wrong, later } = rollout;
  if (k < 0) return el("span", { class: "outside" }, tokens);
  // The number stands where the step's text begins, which may be inside the token before its first one.
  const opensHere = matched !== false && steps[k].start >= offsets[t];
  const beside = el(
    "span",
    { class: "chip", "data-k": k, "aria-hidden": "true" },
    hasRewards(rollout) ? el("span", { class: "r" }, score(steps[k].reward)) : null,
    el("span", { class: "a" }, stepText(measure, rollout, k)),
    later ? el("span", { class: "l" }, later[k] ? signed(later[k], Math.abs(later[k]) < 10 ? 2 : 1) : "") : null,
  );
  const attributes = {
    class: `step${wrong?.[k] ? " wrong" : ""}`,
    "data-k": k,
    "data-n": opensHere ? k + 1 : null,
    role: "button",
    tabindex: -1,
    "aria-label": stepLabel(rollout, steps, k, measure),
  };
  return el("span", attributes, tokens, t === steps[k].first ? beside : null);
}

/** @param {Credited} rollout @param {StepPayload[]} steps @param {number} k @param {Measure} measure */
export function stepLabel(rollout, steps, k, measure) {
  if (isWatched(rollout)) return [labelSaid(rollout, k), stepSaid(measure, rollout, k)].filter(Boolean).join(", ");
  const advantage = signed(rollout.advantages?.[steps[k].last], 2);
  const wrong = rollout.wrong?.[k] ? `wrong by ${rollout.wrong[k]}, ` : "";
  const later = rollout.later?.[k];
  const shared = later ? `, ${signed(later, 2)} of it from later steps` : "";
  const scored = `${wrong}score ${score(steps[k].reward)}, advantage ${advantage}${shared}`;
  const label = `step ${k + 1} of ${steps.length}, ${scored}`;
  const more = ["advantage", "reward"].includes(measure.key) ? "" : stepSaid(measure, rollout, k);
  return more ? `${label}, ${more}` : label;
}

/** @param {Element} article @param {Credited} rollout @param {Measure} measure Labels a drawn card for another measure. */
export function relabel(article, rollout, measure) {
  for (const title of article.querySelectorAll(".cols .measure")) title.textContent = measure.short;
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (article.querySelectorAll(".step"))) {
    const k = Number(node.dataset.k);
    if (!node.closest(".second")) node.setAttribute("aria-label", stepLabel(rollout, rollout.steps ?? [], k, measure));
    const value = node.querySelector(".chip .a");
    if (value) value.textContent = stepText(measure, creditedAt(node, rollout, measure), k);
  }
}

/** @param {Element} node @param {Credited} rollout @param {Measure} measure Under which of two schemes a node of a card is. */
const creditedAt = (node, rollout, measure) =>
  rollout.twin && !measure.one && node.closest(".second") ? rollout.twin : rollout;

/**
 * Colours each token of a card by a measure, without rebuilding anything.
 * @param {Element} article @param {Credited} rollout @param {Measure} measure @param {number} limit
 */
export function colourTokens(article, rollout, measure, limit) {
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (article.querySelectorAll(".text i"))) {
    const kept = node.className ? KEPT_CLASSES.filter((name) => node.classList.contains(name)) : [];
    const t = Number(node.dataset.t);
    const value = rollout.observed?.[t] ? null : measure.token(creditedAt(node, rollout, measure), t);
    const look = [...kept, tint(value, limit, measure)].join(" ").trim();
    if (node.className !== look) node.className = look;
  }
}

/** @param {Credited} rollout @param {number} g The whole of a long text, as a file that never leaves the browser. */
function fullText(rollout, g) {
  const { texts, offsets, finished } = rollout;
  const characters = offsets[texts.length - (finished ? 1 : 0)].toLocaleString("en");
  const attributes = { class: "more", href: "#", download: `rollout-${g + 1}.txt` };
  const link = el("a", attributes, `Full text, ${characters} characters`);
  link.addEventListener("click", () => {
    link.setAttribute(
      "href",
      objectUrl(new Blob([plainText(rollout, texts.length)], { type: "text/plain;charset=utf-8" })),
    );
  });
  return link;
}

// ── the group ──────────────────────────────────────────────────────────────────────────────────────────────────

/** @param {StepPayload[]} steps The sum of the scored steps' rewards, null where none is scored. */
function sumOfSteps(steps) {
  const rewards = steps.map((step) => step.reward).filter((reward) => reward !== null);
  return rewards.length ? rewards.reduce((a, b) => a + b, 0) : null;
}

/** @param {Credited[]} rollouts Sets each one's rank by total reward: 1 is best, equal totals share a rank. */
export function rank(rollouts) {
  const totals = rollouts.map(({ steps, outcome, name }) => {
    const sum = steps ? sumOfSteps(steps) : null;
    return !steps || isWatched({ name }) || (sum === null && (outcome ?? null) === null)
      ? null
      : (sum ?? 0) + (outcome ?? 0);
  });
  rollouts.forEach((rollout, g) => {
    const total = totals[g];
    rollout.rank = total === null ? null : 1 + totals.filter((other) => other !== null && other > total).length;
  });
}
