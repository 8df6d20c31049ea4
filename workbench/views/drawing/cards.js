// One rollout: its header, its step chips and its text; and the line about the whole group.

/** @import { StepPayload } from "../payloads.d.ts" */
/** @import { Credited, Measure, Prepared } from "./payload.js" */

import { el, objectUrl } from "../dom.js";
import { count, meanOf, number, ordinal, score, share, signed, stdOf } from "../numbers.js";
import { copyMarks, distinct, equalTo, named } from "./copies.js";
import { stepSaid, stepText } from "./measures.js";
import { factText, isWatched, labelSaid, nameOf, paneTitles } from "./rows.js";
import { Cuts, TOKEN_CHARACTERS, tokenElement } from "./tokens.js";
import { errorMark, lane, OBSERVED_TITLE, sampledCharacters, sampledLength, turnCount, turnElements } from "./turns.js";

export const STEPS = ".text:not(.second) .step"; // those the keyboard moves over
export const WRONG = "✕";
export const WRONG_TITLE = "The reward that says right or wrong scores this step 0 or less";
const DRAWN_TOKENS = 20000; // of one rollout; more is a button away
const DRAWN_CHARACTERS = 200000;

/**
 * @param {Prepared} data @param {number} g @param {Measure} measure
 * @param {{ whole?: boolean, folded?: boolean }} [options] `whole`: all of a long text; `folded`: it stands for its copies
 */
export function card(data, g, measure, { whole = false, folded = false } = {}) {
  const rollout = data.rollouts[g];
  const drawn = whole ? rollout.texts.length : drawnTokens(rollout);
  const left = rollout.texts.length - drawn;
  const more = { type: "button", class: "more", "data-more": g };
  return el(
    "article",
    { class: "rollout", "data-g": g, "aria-label": cardLabel(data, g, folded) },
    el(
      "header",
      {},
      el("h3", {}, rollout.name ?? `${g + 1}`),
      ...copyMarks(data, g, folded),
      ...factsOf(rollout),
      ...marksOf(rollout),
      rankOf(data, g),
    ),
    lane(data, g),
    rollout.steps?.length ? chips(rollout, rollout.steps, measure) : null,
    textElements(data, rollout, drawn, measure),
    left ? el("button", more, `Draw ${left} more tokens`) : null,
    left || rollout.texts.some((text) => text.length > TOKEN_CHARACTERS) ? fullText(rollout, g) : null,
  );
}

/** @param {Prepared} data @param {number} g @param {boolean} folded */
function cardLabel(data, g, folded) {
  const name = folded ? named(equalTo(data, g)) : nameOf(data, g);
  return isWatched(data.rollouts[g]) ? name : `${name[0].toUpperCase()}${name.slice(1)} of ${data.rollouts.length}`;
}

/** @param {Element} article @param {Prepared} data @param {number} g @param {Measure} measure Draws the whole of a long text. */
export function drawMore(article, data, g, measure) {
  const folded = article.querySelector('.copies[aria-expanded="false"]') !== null;
  article.replaceWith(card(data, g, measure, { whole: true, folded }));
}

/** @param {Credited} rollout How many of its tokens are drawn at first. */
function drawnTokens({ texts, offsets }) {
  let drawn = Math.min(texts.length, DRAWN_TOKENS);
  while (drawn > 1 && offsets[drawn] > DRAWN_CHARACTERS) drawn--;
  return drawn;
}

/** @param {Credited} rollout */
function factsOf({ steps, outcome, texts, facts, right, turns, extracted }) {
  const fact = (/** @type {string} */ name, /** @type {string} */ value, /** @type {string} */ title = "") =>
    el("span", { class: "fact", title: title || null }, el("em", {}, name), value);
  const scored = facts ? facts.map((known) => fact(known.name, factText(known))) : steps
    ? [
      (right ?? null) === null ? null : el("span", { class: "judged" }, right ? "✓ right" : "⊘ wrong"),
      (outcome ?? null) === null ? null : fact("R", score(outcome), "outcome reward"),
      extracted ? el("span", { class: "fact" }, extracted) : null,
      fact("Σr", score(sumOfSteps(steps)), "sum of the step rewards"),
      fact("", count(steps.length, "step")),
    ]
    : [];
  const observed = texts.length - sampledLength({ texts, turns });
  return [
    ...scored,
    turns ? fact("", count(turnCount({ turns }), "turn")) : null,
    fact("", count(texts.length - observed, "token")),
    observed ? fact("", `${observed} observed`, OBSERVED_TITLE) : null,
  ];
}

/** @param {Credited} rollout */
function marksOf({ steps, matched, unsplit, finished, stop, name, turns }) {
  const unmatched = unsplit
    ? "The step pattern found over 1,000 steps, or took too long: the completion stays whole and unscored"
    : "The step pattern found nothing: the whole completion counts as one step";
  return [
    steps && !matched ? el("mark", { title: unmatched }, unsplit ? "unsplit" : "no match") : null,
    errorMark(turns),
    stop ? el("span", { class: "fact", title: `Ended by the stop string ${JSON.stringify(stop)}` }, "stopped") : null,
    finished || stop || isWatched({ name })
      ? null
      : el("mark", { title: "No end-of-sequence token: the length limit cut it off" }, "truncated"),
  ];
}

/** @param {Prepared} data @param {number} g Its place by total reward, where it has one. */
function rankOf({ rollouts }, g) {
  const { rank, outcome } = rollouts[g];
  if (!rank) return null;
  const by = `by ${(outcome ?? null) === null ? "" : "R + "}Σr; the colours may leave the outcome R out`;
  const ranked = rollouts.filter((rollout) => rollout.rank).length;
  return el("span", { class: "rank", title: by }, `${ordinal(rank)} of ${ranked}`);
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
  ) => el("div", { class: `pane ${place}` }, el("h4", {}, `${name} `, el("span", {}, of)), text);
  const second = textElement(rollout, drawn, measure);
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
    if (begins && !rollout.observed?.[t]) holder = parent.appendChild(stepElement(rollout, k, t, measure));
    holder.append(tokenElement(rollout, t, cuts));
  }
}

/** @param {Credited} rollout @param {number} k @param {number} t its first token @param {Measure} measure */
function stepElement(rollout, k, t, measure) {
  const { steps, matched, offsets } = rollout;
  if (k < 0 || !steps) return el("span", { class: steps ? "outside" : "" });
  // The number stands where the step's text begins, which may be inside the token before its first one.
  const opensHere = matched !== false && steps[k].start >= offsets[t];
  const opensLine = t === 0 || rollout.texts[t - 1].endsWith("\n");
  return el("span", {
    class: ["step", rollout.wrong?.[k] ? "wrong" : "", opensLine ? "line" : ""].filter(Boolean).join(" "),
    "data-k": k,
    "data-n": opensHere ? k + 1 : null,
    role: "button",
    tabindex: -1,
    "aria-label": stepLabel(rollout, steps, k, measure),
  });
}

/** @param {Credited} rollout @param {StepPayload[]} steps @param {number} k @param {Measure} measure */
export function stepLabel(rollout, steps, k, measure) {
  if (isWatched(rollout)) return [labelSaid(rollout, k), stepSaid(measure, rollout, k)].filter(Boolean).join(", ");
  const advantage = signed(rollout.advantages?.[steps[k].last], 2);
  const wrong = rollout.wrong?.[k] ? "wrong, " : "";
  const label = `step ${k + 1} of ${steps.length}, ${wrong}score ${score(steps[k].reward)}, advantage ${advantage}`;
  const more = ["advantage", "reward"].includes(measure.key) ? "" : stepSaid(measure, rollout, k);
  return more ? `${label}, ${more}` : label;
}

/** @param {Credited} rollout @param {StepPayload[]} steps @param {Measure} measure */
function chips(rollout, steps, measure) {
  const hasRewards = !isWatched(rollout) || steps.some((step) => step.reward !== null);
  const key = el(
    "span",
    { class: "key", "aria-hidden": "true" },
    el("span", {}, hasRewards ? `step, ${isWatched(rollout) ? "label" : "r"}` : "step"),
    el("span", { class: "measure" }, measure.short),
  );
  const chip = (/** @type {StepPayload} */ step, /** @type {number} */ k) => {
    const label = stepLabel(rollout, steps, k, measure);
    return el(
      "button",
      { type: "button", class: "chip", "data-k": k, tabindex: -1, "aria-label": label },
      el("b", rollout.wrong?.[k] ? { class: "wrong", title: WRONG_TITLE } : {}, `${k + 1}`),
      hasRewards ? el("span", { class: "r" }, score(step.reward)) : null,
      el("span", { class: "a" }, stepText(measure, rollout, k)),
    );
  };
  return el("div", { class: "chips" }, key, ...steps.map(chip));
}

/** @param {Element} article @param {Credited} rollout @param {Measure} measure Labels a drawn card for another measure. */
export function relabel(article, rollout, measure) {
  const key = article.querySelector(".chips .measure");
  if (key) key.textContent = measure.short;
  const steps = rollout.steps ?? [];
  const labels = steps.map((_, k) => stepLabel(rollout, steps, k, measure));
  for (const node of article.querySelectorAll(".step, .chip")) {
    node.setAttribute("aria-label", labels[Number(/** @type {HTMLElement} */ (node).dataset.k)]);
  }
  article.querySelectorAll(".chip .a").forEach((node, k) => { // in the order of the steps
    /** @type {Text} */ (node.firstChild).data = stepText(measure, rollout, k);
  });
}

/** @param {Credited} rollout @param {number} g The whole of a long text, as a file that never leaves the browser. */
function fullText({ texts, offsets }, g) {
  const characters = offsets[texts.length].toLocaleString("en");
  const attributes = { class: "more", href: "#", download: `rollout-${g + 1}.txt` };
  const link = el("a", attributes, `Full text, ${characters} characters`);
  link.addEventListener("click", () => {
    link.setAttribute("href", objectUrl(new Blob(texts, { type: "text/plain;charset=utf-8" })));
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

/** @param {Credited[]} rollouts The group in numbers. */
export function summary(rollouts) {
  const steps = rollouts.flatMap((rollout) => rollout.steps ?? []);
  const rewards = steps.map((step) => step.reward).filter((reward) => reward !== null);
  const outcomes = rollouts.map((rollout) => rollout.outcome ?? null).filter((outcome) => outcome !== null);
  const characters = rollouts.reduce((sum, r) => sum + sampledCharacters(r), 0);
  const covered = steps.reduce((sum, step) => sum + step.end - step.start, 0);
  const unmatched = rollouts.filter((rollout) => rollout.matched === false).length;
  const truncated = rollouts.filter(({ finished, stop }) => !finished && !stop).length;
  const [differ, unscored] = [distinct({ rollouts }), steps.length - rewards.length];
  const outside = characters > covered
    ? `, ${share(characters - covered, characters)} of the text outside any step`
    : "";
  const stepsSaid = unmatched ? `steps per answer, none found in ${unmatched}` : `steps per answer${outside}`;
  const spread = (/** @type {number[]} */ values) => `${number(meanOf(values), 2)} ± ${number(stdOf(values), 2)}`;
  const item = (/** @type {string | number} */ value, /** @type {string} */ name, bad = false) =>
    el("span", { class: bad ? "bad" : null }, el("b", {}, value), ` ${name}`);
  return [
    item(rollouts.length, differ < rollouts.length ? `rollouts, ${differ} distinct` : "rollouts"),
    item(number(steps.length / rollouts.length, 1), stepsSaid, unmatched > 0),
    ...(rewards.length ? [item(spread(rewards), unscored ? `step reward, ${unscored} unscored` : "step reward")] : []),
    ...(outcomes.length ? [item(spread(outcomes), "outcome")] : []),
    item(truncated, "truncated", truncated > 0),
  ];
}
