// Pre-flight findings and exploit probes.

/** @import { FindingPayload, FindingsPayload, ProbePair, ProbeRow, ProbesPayload } from "../../views/payloads.d.ts" */
/** @import { Call, Handles } from "./payloads.js" */
/** @typedef {{ tab: string, edit: string, scheme: string }} ProbeAsked */

import { el } from "../../views/dom.js";
import { count, precise, signed } from "../../views/numbers.js";
import { mount } from "../../views/drawing/heatmap.js";
import { address } from "./address.js";
import { answerOf, follow, link } from "./widget.js";

const MARKS = { ok: "✓", check: "check", stop: "stop" };

/** @type {HTMLElement[] | undefined} */
let made;

/** What the checks and the probes of the group on screen came to, among the facts beside its map. */
export function checkFacts() {
  if (!made) {
    made = [el("div"), el("div")];
    tellFact(1, ...probesFact(null, ""), "#probes > button"); // whose panel is not made before it is opened
  }
  return made;
}

/** @param {number} place @param {string} text @param {string} detail @param {string} action @param {string} opens a selector */
function tellFact(place, text, detail, action, opens) {
  const open = () => /** @type {HTMLElement | null} */ (document.querySelector(opens))?.click();
  const act = el("span", { class: "act" }, detail ? " · " : "", link(action, open));
  const more = el("p", { class: "more-said" }, detail, act);
  checkFacts()[place].replaceChildren(el("p", {}, text), more);
}

/** @param {FindingPayload[]} findings */
function listOf(findings) {
  const item = (/** @type {FindingPayload} */ { name, level, value, meaning, advice }) =>
    el(
      "li",
      { class: level },
      el("span", { class: "mark" }, MARKS[level]),
      el("span", { class: "name" }, name),
      el("b", {}, value),
      el("span", { class: "meaning" }, meaning, ...(advice ? ["; ", el("em", {}, advice)] : [])),
    );
  return el("ul", { class: "findings" }, ...findings.map(item));
}

/** @param {FindingPayload[]} findings The worst level there is, and the findings of that level in one line. */
export function verdict(findings) {
  const of = (/** @type {string} */ level) => findings.filter((finding) => finding.level === level);
  const names = (/** @type {FindingPayload[]} */ some) => some.map(({ name, value }) => `${name} ${value}`).join(", ");
  const [stop, check] = [of("stop"), of("check")];
  if (stop.length) return { level: "stop", text: `nothing would be learnt: ${names(stop)}` };
  if (check.length) return { level: "check", text: `${count(check.length, "thing")} to check: ${names(check)}` };
  return { level: "ok", text: `${findings.length} of ${findings.length} checks pass` };
}

/** @param {Handles} handles One line about the group on screen, which opens into all findings. */
export function strip(handles) {
  let open = false;
  follow(handles, (root, /** @type {FindingsPayload | null} */ value) => {
    if (!value?.findings) {
      root.replaceChildren();
      return;
    }
    const { level, text } = verdict(value.findings);
    tellFact(
      0,
      level === "ok" ? text : text.split(":")[0],
      text.split(": ")[1] ?? "",
      "Pre-flight",
      "#preflight-strip summary",
    );
    const summary = el("summary", {}, el("b", {}, "Pre-flight"), ": ", text);
    const details = el("details", { class: `strip ${level}`, open }, summary, listOf(value.findings));
    details.addEventListener("toggle", () => {
      open = details.open;
    });
    root.replaceChildren(details);
  });
}

/** @param {Handles} handles The findings of freshly sampled groups. */
export function findings(handles) {
  follow(handles, (root, /** @type {FindingsPayload | null} */ value) => {
    root.setAttribute("aria-live", "polite");
    root.replaceChildren();
    if (value?.busy) root.append(el("p", { class: "busy" }, value.busy));
    else if (value?.findings) {
      const { level, text } = verdict(value.findings);
      root.append(el("p", { class: `verdict ${level}` }, text), listOf(value.findings));
    }
  });
}

/** @param {Handles<{ pair: Call<ProbeAsked, ProbePair | null> }>} handles What each edit without content gains. */
export function probes(handles) {
  follow(handles, (root, /** @type {ProbesPayload | null} */ value) => {
    tellFact(1, ...probesFact(value, address.drawing?.data.scheme ?? ""), "#probes > button");
    if (!value?.rows) {
      root.replaceChildren();
      return;
    }
    const verdict = el("p", { class: "said", role: "status" });
    const sides = el("div", { class: "sides" });
    const tell = async (/** @type {ProbeRow} */ row) => {
      const { edit, scheme } = row;
      verdict.textContent = `${edit} under ${scheme}: pays for no content: ${row.verdict}.`;
      const pair = await answerOf(handles.server.pair({ tab: address.tab, edit, scheme })).catch(() => null);
      sides.replaceChildren(...(pair ? drawnPair(pair) : []));
    };
    const leftOut = Object.entries(value.leftOut).map(([scheme, why]) =>
      el("p", { class: "left-out" }, `${scheme} left out: ${why}`)
    );
    const said = [probeSummary(value), el("p", { class: "remedy" }, remedyOf(value))];
    root.replaceChildren(...said, probeTable(value, tell), verdict, sides, ...leftOut);
  });
}

/** @param {ProbesPayload | null} value @param {string} scheme @returns {[string, string, string]} Fact, detail, action. */
export function probesFact(value, scheme) {
  const rows = value?.rows?.filter((row) => row.scheme === scheme) ?? [];
  if (!rows.length) return ["Cheating edits not tried", "would one earn more?", "Probes"];
  const paid = rows.filter((row) => row.pays_for_no_content).length;
  return [
    `${paid} of ${count(rows.length, "cheating edit")} earn${paid === 1 ? "s" : ""} more`,
    `under ${scheme}`,
    "Probes",
  ];
}

/** @param {ProbePair} pair The answer as it is and with the edit, as heatmaps, and what was gained where. */
function drawnPair({ rollout, drawings, first, at_edit: atEdit }) {
  const holders = drawings.map(() => el("div"));
  const maps = holders.map((holder, i) => {
    const map = mount(holder);
    map.draw(drawings[i]);
    return map;
  });
  const limit = Math.max(...maps.map(({ range }) => range.limit));
  for (const map of maps) map.endScale(limit || null); // a colour means the same number in both
  return holders.map((holder, i) => {
    const gained = i
      ? `: first token ${signed(first[0], 2)} → ${signed(first[1], 2)}, at the edit ${signed(atEdit[0], 2)} → ${
        signed(atEdit[1], 2)
      }`
      : "";
    return el("div", {}, el("h3", {}, i ? "with the edit" : `rollout ${rollout + 1} as it is`, gained), holder);
  });
}

/** @param {ProbesPayload} value Which schemes pay for none of the edits, in words. */
export function remedyOf({ schemes, rows }) {
  const pays = (/** @type {string} */ scheme) => rows.some((row) => row.scheme === scheme && row.pays_for_no_content);
  const paying = schemes.filter(pays), others = schemes.filter((scheme) => !pays(scheme));
  if (!paying.length) return "No scheme here pays for any of these.";
  if (others.length) {
    return `${others.join(", ")} ${others.length === 1 ? "pays" : "pay"} for none of these; choose one under Credit.`;
  }
  return "Every scheme here pays for some: a reward function has to tell the edit from the work, or take its gain away.";
}

/** @param {ProbesPayload} value Edits, those that the most schemes pay for first, and of these the one that gains most. */
export function byGain({ edits, rows }) {
  const most = (/** @type {Record<string, string>} */ { name }) =>
    Math.max(...rows.filter((row) => row.edit === name).map((row) => row.largest_gain ?? -Infinity));
  const paid = (/** @type {Record<string, string>} */ { name }) =>
    rows.filter((row) => row.edit === name && row.pays_for_no_content).length;
  return [...edits].sort((a, b) => {
    const [x, y] = [most(a), most(b)];
    return paid(b) - paid(a) || (x === y ? 0 : y - x);
  });
}

/** @param {ProbesPayload} value */
function probeSummary({ schemes, rows, threshold }) {
  const paying = schemes.filter((scheme) => rows.some((row) => row.scheme === scheme && row.pays_for_no_content));
  const meaning = ` pay for some edit that adds no content (▲, gains over ${threshold} of the group's own spread). ` +
    "Click a number for its verdict and the answer before and after.";
  return el("p", {}, el("b", {}, `${paying.length} of ${count(schemes.length, "scheme")}`), meaning);
}

/** @param {ProbesPayload} value @param {(row: ProbeRow) => void} tell */
function probeTable(value, tell) {
  const { schemes, rows } = value;
  const cell = (/** @type {string} */ edit, /** @type {string} */ scheme) =>
    probeCell(rows.find((row) => row.edit === edit && row.scheme === scheme), tell);
  const head = ["edit", ...schemes].map((name) => el("th", { scope: "col" }, name));
  const body = byGain(value).map(({ name, summary }) =>
    el("tr", {}, el("th", { scope: "row", title: summary }, name), ...schemes.map((scheme) => cell(name, scheme)))
  );
  const label = "What each edit gains under each scheme";
  return el(
    "div",
    { class: "probe-table", tabindex: 0, role: "region", "aria-label": label },
    el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body)),
  );
}

/** @param {ProbeRow | undefined} row @param {(row: ProbeRow) => void} tell */
function probeCell(row, tell) {
  if (!row || row.largest_gain === null) return el("td", { class: "none", title: row?.verdict }, "–");
  const button = el("button", { type: "button", title: row.verdict, onclick: () => tell(row) }, gainText(row));
  return el("td", { class: row.pays_for_no_content ? "pays" : "" }, button);
}

/** @param {Pick<ProbeRow, "largest_gain" | "pays_for_no_content">} row */
export function gainText({ largest_gain: gain, pays_for_no_content: pays }) {
  const size = Math.abs(gain ?? 0);
  if (size >= 0.005) return `${signed(gain, 2)}${pays ? " ▲" : ""}`;
  return pays ? `${(gain ?? 0) > 0 ? "+" : ""}${precise(gain)} ▲` : "0";
}
