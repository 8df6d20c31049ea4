// The details of the pinned token: the facts about it, and under each scheme the terms of its advantage.

/** @import { SchemePayload } from "../payloads.d.ts" */
/** @import { Credited, Measure, Place, Prepared } from "./payload.js" */

import { el } from "../dom.js";
import { score, signed } from "../numbers.js";
import { isLeftOut } from "./copies.js";
import { nameOf } from "./rows.js";
import { sentence } from "./said.js";
import { observationAt, OBSERVED } from "./turns.js";
import { facts, quoted, remarks, whyAt, whyTable } from "./why.js";

/**
 * @param {Prepared} data @param {Place} pinned @param {Measure} measure
 * @param {{ onUnpin: () => void, ask: (rollout: Credited, which: "a" | "b") => void, loss?: HTMLElement | null }} options
 *   `ask` gets the terms that the payload did not bring, `loss` is the token in the loss
 */
export function pinnedDetails(data, { g, t }, measure, { onUnpin, ask, loss = null }) {
  const rollout = data.rollouts[g];
  const rows = facts(rollout, t, measure).flatMap(({ name, value, shown }) => [
    el("dt", { class: shown ? "shown" : null }, name),
    el("dd", { class: shown ? "shown" : null }, value),
  ]);
  if (observationAt(rollout, t)) {
    const said = el("p", { class: "unsampled" }, OBSERVED);
    return [head(rollout, nameOf(data, g), t, onUnpin), el("div", { class: "body" }, el("dl", {}, ...rows), said)];
  }
  const reasons = [reason(data, rollout, t, data.other ? "A " : "", () => ask(rollout, "a"))];
  const { twin } = rollout;
  if (twin && data.other) reasons.push(reason(data.other, twin, t, "B ", () => ask(twin, "b")));
  const logged = remarks(rollout, rollout.stepOf[t]);
  const said = logged.length ? [el("div", { class: "remarks" }, ...logged)] : [];
  return [
    head(rollout, nameOf(data, g), t, onUnpin),
    el("div", { class: "body" }, el("dl", {}, ...rows), ...said, ...reasons, loss),
  ];
}

/** @param {Credited} rollout @param {string} name @param {number} t @param {() => void} onUnpin */
function head(rollout, name, t, onUnpin) {
  const k = rollout.stepOf[t];
  const outside = observationAt(rollout, t)?.role ?? "outside every step";
  const where = `${name} · ${k < 0 ? outside : `step ${k + 1}`} · token ${t} `;
  const close = { type: "button", class: "close", "aria-label": "Unpin", title: "Unpin (Esc)", onclick: onUnpin };
  return el(
    "header",
    {},
    el("h4", {}, "Why this colour"),
    el("span", { class: "where" }, where, el("code", {}, quoted(rollout.texts[t]))),
    el("button", close, "Esc"),
  );
}

/**
 * The formula and the terms of one token under one scheme.
 * @param {Partial<SchemePayload>} scheme @param {Credited} rollout @param {number} t
 * @param {string} letter @param {() => void} ask
 */
function reason(scheme, rollout, t, letter, ask) {
  const why = whyAt(rollout, t);
  if (!why) {
    ask();
    return null;
  }
  const clipped = why.clip !== null && Math.abs(why.total) > why.clip && rollout.advantages
    ? el("p", {}, `clipped to ±${score(why.clip)}: the advantage is ${signed(rollout.advantages[t], 4)}`)
    : null;
  return el(
    "div",
    { class: "reason" },
    why.said.length ? el("p", { class: "sentence" }, ...sentence(why.said, () => null)) : null,
    el("p", { class: "formula" }, el("b", {}, `${letter}${scheme.scheme}`), ` ${scheme.formula}`),
    isLeftOut(scheme, rollout) ? el("p", {}, `left out: rollout ${(rollout.copyOf ?? 0) + 1} counts for it`) : null,
    whyTable(rollout, why),
    clipped,
  );
}
