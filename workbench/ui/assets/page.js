// The page's header: its title, the policy's state, and the light or dark theme.

/** @typedef {{ title: string, loop: string }} HeaderPayload */
/** @import { PolicyStatusPayload } from "../../views/payloads.d.ts" */
/** @import { Call, Handles } from "./payloads.js" */

import { el, once } from "../../views/dom.js";
import { watchControls } from "./controls.js";
import { answerOf, follow, link, tabs, whileVisible } from "./widget.js";

const THEME = "workbench-theme"; // in the browser's storage

/** @param {Handles<{ policy_status: Call<{ policy: string }, PolicyStatusPayload> }>} handles */
export function header(handles) {
  const status = el("span", { id: "policy-status", role: "status" });
  const told = el("span", { id: "told", role: "status" });
  const theme = themeButton();
  tabs.tell = (text, lead) => {
    const go = () => {
      told.replaceChildren();
      lead();
    };
    told.replaceChildren(link(text, go));
  };
  follow(handles, (root, /** @type {HeaderPayload | null} */ value) => {
    const skip = el("a", { class: "skip", href: "#heatmap", onclick: skipToGroup }, "Skip to the heatmap");
    root.replaceChildren(
      skip,
      el("h1", {}, value?.title),
      el("p", { class: "loop" }, value?.loop),
      status,
      told,
      theme,
    );
  });
  watchControls();
  let state = "off", chosen = "";
  whileVisible(handles.element, async () => {
    const field = /** @type {HTMLInputElement | null} */ (document.querySelector("#policy input"));
    if (field && field !== document.activeElement) chosen = field.value.trim(); // not what is only half typed
    try {
      const policy = await answerOf(handles.server.policy_status({ policy: chosen }));
      state = policy.state;
      const text = policyText(policy);
      once(status, text, () => {
        const [name, ...more] = text.split(" · ");
        status.replaceChildren(name, el("span", { class: "more" }, more.map((part) => ` · ${part}`).join("")));
      });
      status.title = policy.message || (policy.decoding && `decoded by the ${policy.decoding}`);
      status.className = policy.state;
    } catch {
      state = "lost";
      once(status, state, () => status.replaceChildren("no connection to the workbench, trying again"));
      status.className = "failed";
    }
  }, () => (state === "ready" ? 5000 : 1000));
}

/** @param {Event} event Moves the focus to the group's first step, past all controls. */
function skipToGroup(event) {
  event.preventDefault();
  document.getElementById("inspect-tab-button")?.click();
  const step = /** @type {HTMLElement | null} */ (document.querySelector("#heatmap .step[tabindex='0']"));
  step?.focus();
  step?.scrollIntoView({ block: "center" });
}

const SIZE = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** @param {PolicyStatusPayload} status */
export function policyText({ state, policy, seconds, device, parameters }) {
  policy = policy.replace(/^[/~.].*\//, ""); // of a path, its last part
  const size = parameters ? ` · ${SIZE.format(parameters)} parameters` : "";
  switch (/** @type {string} */ (state)) {
    case "loading":
      return `loading policy · ${Math.round(seconds)} s`;
    case "unloaded":
      return `policy ${policy} · loads when you sample`;
    case "sampling":
      return `policy ${policy} sampling`;
    case "ready":
      return `policy ${policy}${size}${device ? ` · ${device}` : ""}`;
    case "failed":
      return `policy ${policy} failed`;
    default:
      return "";
  }
}

// ── theme ──────────────────────────────────────────────────────────────────────────────────────────────────────

function themeButton() {
  const isDark = () => document.body.classList.contains("dark");
  const button = el("button", { type: "button", id: "theme", onclick: () => setTheme(isDark() ? "light" : "dark") });
  const name = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
  };
  new MutationObserver(name).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  name();
  return button;
}

/** @param {string} name */
function setTheme(name) {
  document.body.classList.toggle("dark", name === "dark");
  try {
    localStorage.setItem(THEME, name);
  } catch { /* private windows may refuse: the choice lasts until reload */ }
}

/** Sets the theme that was chosen on an earlier visit. */
export function restoreTheme() {
  try {
    const chosen = localStorage.getItem(THEME);
    if (chosen) document.body.classList.toggle("dark", chosen === "dark");
  } catch { /* as above */ }
}
