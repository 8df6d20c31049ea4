// Pre-flight findings, exploit probes and the reward clinic.

/** @import { ClinicPayload, FindingPayload, ProbePair, ProbeRow, ProbesPayload } from "../../views/payloads.d.ts" */
/** @import { PromptPayload, SidesPayload } from "../../views/payloads.d.ts" */
/** @import { Call, Handles } from "./payloads.js" */
/** @typedef {{ tab: string, edit: string, scheme: string }} ProbeAsked */
/** @typedef {{ findings?: FindingPayload[], prompts?: PromptPayload[], busy?: string }} FindingsPayload */
/** @typedef {{ name: string, looks_at: string, forms: string[], tried: number, findings: FindingPayload[], scores: Record<string, number | null> }} Patient */

import { el, tableOf } from "../../views/dom.js";
import { count, precise, signed } from "../../views/numbers.js";
import { mount } from "../../views/drawing/heatmap.js";
import { MEASURES, tint } from "../../views/drawing/measures.js";
import { NOT_RIGHT, RIGHT } from "../../views/drawing/overview.js";
import { sentence } from "../../views/drawing/said.js";
import { address } from "./address.js";
import { answerOf, follow, link, rootOf } from "./widget.js";

const MARKS = { ok: "✓", check: "check", stop: "stop" };

/** @type {HTMLElement[] | undefined} */
let made;

/** What the checks and the probes of the group on screen came to, among the facts beside its map; empty before. */
export function checkFacts() {
  if (!made) {
    made = [el("div"), el("div"), el("div")];
    tellFact(2, "Answers of one policy", "", "Beside another policy", "beside");
  }
  return made;
}

/** @param {string} panel Opens a panel below the facts, or closes it. */
const toggle = (panel) => document.getElementById(panel)?.toggleAttribute("data-open");

/** @param {Handles} handles @param {string} title The head of a panel. */
export function panelTitle(handles, title) {
  const close = () => handles.element.closest(".drawer")?.removeAttribute("data-open");
  rootOf(handles).append(el("h3", {}, title), link("Close", close));
}

/** Leads to the panel of checks, from another tab. */
export function checkSetup() {
  document.getElementById("inspect-tab-button")?.click();
  const panel = document.getElementById("check-setup");
  panel?.toggleAttribute("data-open", true);
  setTimeout(() => panel?.scrollIntoView({ block: "center" }), 100);
}

/** @param {number} place @param {string} text @param {string} detail @param {string} action @param {string} panel */
function tellFact(place, text, detail, action, panel) {
  const act = el("span", { class: "act" }, detail ? " · " : "", link(action, () => toggle(panel)));
  checkFacts()[place].replaceChildren(el("p", {}, text), el("p", { class: "more-said" }, detail, act));
}

/** @param {FindingPayload[]} findings What needs a look, the worst first; what is well is folded away. */
function listOf(findings) {
  const item = (/** @type {FindingPayload} */ { name, level, value, meaning, advice }) =>
    el(
      "li",
      { class: level },
      el("span", { class: "mark" }, value === "–" ? "" : MARKS[level]),
      el("span", { class: "name" }, name),
      el("b", {}, value),
      el("span", { class: "meaning" }, meaning, ...(advice ? ["; ", el("em", {}, advice)] : [])),
    );
  const of = (/** @type {(finding: FindingPayload) => boolean} */ wanted) => findings.filter(wanted).map(item);
  const untried = of(({ level, value }) => level === "ok" && value === "–");
  const worst = [...of(({ level }) => level === "stop"), ...of(({ level }) => level === "check"), ...untried];
  const well = of(({ level, value }) => level === "ok" && value !== "–");
  const rest = el(
    "details",
    { hidden: !well.length },
    el("summary", {}, `${count(well.length, "check")} ${well.length === 1 ? "passes" : "pass"}`),
  );
  rest.append(el("ul", { class: "findings" }, ...well));
  return el("div", {}, el("ul", { class: "findings", hidden: !worst.length }, ...worst), rest);
}

/** @param {FindingPayload[]} findings The worst level there is, and the findings of that level in one line. */
export function verdict(findings) {
  const of = (/** @type {string} */ level) => findings.filter((finding) => finding.level === level);
  const names = (/** @type {FindingPayload[]} */ some) => some.map(({ name, value }) => `${name} ${value}`).join(", ");
  const [stop, check] = [of("stop"), of("check")];
  if (stop.length) return { level: "stop", text: `Nothing would be learnt: ${names(stop)}` };
  if (check.length) {
    const need = check.length === 1 ? "needs" : "need";
    return { level: "check", text: `${check.length} of ${findings.length} ${need} a look: ${names(check)}` };
  }
  return { level: "ok", text: `${findings.length} of ${findings.length} checks pass` };
}

/** @param {Handles} handles The findings about the group on screen. */
export function strip(handles) {
  follow(handles, (root, /** @type {FindingsPayload | null} */ value) => {
    root.replaceChildren();
    if (!value?.findings) return;
    const { level, text } = verdict(value.findings);
    const [said, detail = ""] = level === "ok" ? [text] : text.split(": ");
    tellFact(0, said, detail, "Check this setup", "check-setup");
    root.append(el("p", { class: `verdict ${level}` }, el("b", {}, "This group"), ": ", text), listOf(value.findings));
  });
}

/**
 * Draws what a check came to, or how far it is.
 * @param {Handles<any>} handles @param {(value: any) => Node[]} draw
 */
function onceDone(handles, draw) {
  follow(handles, (root, /** @type {{ busy?: string } | null} */ value) => {
    root.setAttribute("aria-live", "polite");
    root.replaceChildren(...(value ? value.busy ? [el("p", { class: "busy" }, value.busy)] : draw(value) : []));
  });
}

/** @param {Handles} handles The findings of freshly sampled groups, and these groups: a click opens one. */
export function findings(handles) {
  const open = (/** @type {number} */ place) => {
    handles.trigger("apply", { place });
    globalThis.scrollTo({ top: 0 });
  };
  onceDone(handles, (/** @type {Required<FindingsPayload>} */ { findings, prompts }) => {
    const { level, text } = verdict(findings);
    return [el("p", { class: `verdict ${level}` }, text), promptTable(prompts, open), listOf(findings)];
  });
}

/** @param {PromptPayload[]} prompts @param {(place: number) => void} open Prompts by answers, coloured by mean advantage. */
function promptTable(prompts, open) {
  const limit = Math.max(...prompts.flatMap(({ answers }) => answers.map(([mean]) => Math.abs(mean ?? 0))));
  const mark = (/** @type {boolean | null} */ right) => right === null ? "" : right ? RIGHT : NOT_RIGHT;
  const cell = (/** @type {[number | null, boolean | null]} */ [mean, right]) => {
    const push = mean === null ? "left out of the loss" : `${signed(mean, 2)} on average`;
    const said = `${push}${right === null ? "" : right ? ", right" : ", wrong"}`;
    return el("td", { class: tint(mean, limit, MEASURES[0]), title: said, "aria-label": said }, mark(right));
  };
  const rows = prompts.map(({ place, prompt, answers }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, link(prompt.replace(/ ↵\s*$/, ""), () => open(place))),
      ...answers.map(cell),
    )
  );
  const about = "Mean advantage of each answer: training would push blue ones up and orange ones down.";
  return el(
    "div",
    { class: "prompts" },
    el("p", {}, about),
    el("table", { "aria-label": about }, el("tbody", {}, ...rows)),
  );
}

/** @param {Handles} handles The answers of two policies to the prompt on screen. */
export function sides(handles) {
  onceDone(handles, (/** @type {SidesPayload} */ { drawings, names, said }) => {
    const drawn = drawnSides(drawings, names.map((name) => el("h3", {}, name)));
    return [el("p", { class: "headline" }, said), el("div", { class: "sides" }, ...drawn)];
  });
}

/** @param {Handles<{ pair: Call<ProbeAsked, ProbePair | null> }>} handles What each edit without content gains. */
export function probes(handles) {
  onceDone(handles, (/** @type {ProbesPayload} */ value) => {
    tellFact(1, ...probesFact(value), "Check this setup", "check-setup");
    const verdict = el("p", { class: "said", role: "status" });
    const sides = el("div", { class: "sides" });
    const tell = async (/** @type {ProbeRow} */ row) => {
      const { edit, scheme } = row;
      verdict.textContent = `${edit} under ${scheme}: ${row.verdict}.`;
      const pair = await answerOf(handles.server.pair({ tab: address.tab, edit, scheme })).catch(() => null);
      sides.replaceChildren(...(pair ? drawnPair(pair) : []));
    };
    const leftOut = Object.entries(value.leftOut).map(([scheme, why]) =>
      el("p", { class: "left-out" }, `${scheme} left out: ${why}`)
    );
    return [
      el("p", { class: "headline" }, ...sentence(value.said.map(([text, to]) => [text, to]), () => null)),
      el("p", { class: "remedy" }, remedyOf(value)),
      ownTable(value, tell),
      verdict,
      sides,
      el("details", {}, el("summary", {}, "Each edit under every scheme"), probeTable(value, tell), ...leftOut),
    ];
  });
}

/** @param {Handles} handles What the rewards get wrong, and what each strategy earns. */
export function clinic(handles) {
  onceDone(handles, (/** @type {ClinicPayload} */ value) => {
    const rewards = /** @type {Patient[]} */ ([...value.rewards]);
    const together = /** @type {FindingPayload[]} */ ([...value.together]);
    const parts = rewards.flatMap(({ name, looks_at: looksAt, forms, tried, findings }) => {
      const where = forms.length ? `looks at the ${looksAt} in the forms ${forms.join(", ")} · ` : "";
      const about = tried ? `${where}${count(tried, "row")} tried` : "no row fits";
      return [el("h3", {}, name, el("span", { class: "gloss" }, about)), listOf(findings)];
    });
    if (together.length) parts.push(el("h3", {}, "All together"), listOf(together));
    return [el("p", { class: "headline" }, value.headline), ...parts, scoreboard(rewards, value.totals)];
  });
}

/** @param {Patient[]} rewards @param {Record<string, number | null>} totals What each strategy earns. */
function scoreboard(rewards, totals) {
  const columns = rewards.map(({ name, scores }) => ({ name, scores }));
  if (rewards.length > 1) columns.push({ name: "weighted sum", scores: totals });
  const text = (/** @type {number | null} */ score) => score === null ? "–" : precise(score);
  return tableOf(
    { "aria-label": "What each strategy earns" },
    ["strategy", ...columns.map(({ name }) => name)],
    Object.keys(totals).map((strategy) => [strategy, ...columns.map(({ scores }) => text(scores[strategy]))]),
  );
}

/** @param {ProbesPayload} value @returns {[string, string]} Fact and detail. */
export function probesFact({ own, rows }) {
  const tried = rows.filter((row) => row.scheme === own);
  const paid = tried.filter((row) => row.pays_for_no_content).length;
  return [`${paid} of ${count(tried.length, "cheating edit")} earn${paid === 1 ? "s" : ""} more`, `under ${own}`];
}

/** @param {ProbePair} pair The answer as it is and with the edit, as heatmaps, and what was gained where. */
function drawnPair({ rollout, drawings, first, at_edit: atEdit }) {
  const [head, there] = [first, atEdit].map(([before, after]) => `${signed(before, 2)} → ${signed(after, 2)}`);
  const gained = `with the edit: first token ${head}, at the edit ${there}`;
  return drawnSides(drawings, [el("h3", {}, `rollout ${rollout + 1} as it is`), el("h3", {}, gained)]);
}

/** @param {readonly string[]} drawings @param {HTMLElement[]} titles Heatmaps in which a colour means the same number. */
function drawnSides(drawings, titles) {
  const holders = drawings.map(() => el("div"));
  const maps = holders.map((holder, i) => {
    const map = mount(holder);
    map.draw(drawings[i]);
    return map;
  });
  const limit = Math.max(...maps.map(({ range }) => range.limit));
  for (const map of maps) map.endScale(limit || null);
  return holders.map((holder, i) => el("div", {}, titles[i], holder));
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

/** @param {ProbesPayload} value Edits, those that gain most under the page's own scheme first. */
export function byGain({ own, edits, rows }) {
  const gain = (/** @type {Record<string, string>} */ { name }) =>
    rows.find((row) => row.edit === name && row.scheme === own)?.largest_gain ?? -Infinity;
  return [...edits].sort((a, b) => gain(a) === gain(b) ? 0 : gain(b) - gain(a));
}

/** @param {ProbesPayload} value @param {(row: ProbeRow) => void} tell What edits gain under the page's own scheme. */
function ownTable(value, tell) {
  const { own, rows } = value;
  const body = byGain(value).map(({ name, summary }) => {
    const row = rows.find((row) => row.edit === name && row.scheme === own);
    const paying = rows.filter((row) => row.edit === name && row.scheme !== own && row.pays_for_no_content);
    const [before, after] = [row?.first_token_before ?? null, row?.first_token_after ?? null];
    const title = paying.map(({ scheme }) => scheme).join(", ");
    return [
      el("th", { scope: "row" }, name, el("span", { class: "gloss" }, summary)),
      probeCell(row, tell),
      before === null ? "" : `${signed(before, 2)} → ${signed(after, 2)}`,
      el("td", { class: "others", title }, count(paying.length, "other")),
    ];
  });
  const heads = ["edit that adds no content", `best case under ${own}`, "first token", "schemes that pay"];
  return tableOf({ class: "own", "aria-label": `What each edit gains under ${own}` }, heads, body);
}

/** @param {ProbesPayload} value @param {(row: ProbeRow) => void} tell The page's own scheme is the first. */
function probeTable(value, tell) {
  const { own, schemes, rows } = value;
  const cell = (/** @type {string} */ edit, /** @type {string} */ scheme) =>
    probeCell(rows.find((row) => row.edit === edit && row.scheme === scheme), tell);
  const heads = schemes.map((name) => el("th", { scope: "col", class: name === own ? "own" : null }, name));
  const body = byGain(value).map(({ name, summary }) => [
    el("th", { scope: "row", title: summary }, name),
    ...schemes.map((scheme) => cell(name, scheme)),
  ]);
  const label = "What each edit gains under each scheme";
  const region = { class: "probe-table", tabindex: 0, role: "region", "aria-label": label };
  return el("div", region, tableOf({}, ["edit", ...heads], body));
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
