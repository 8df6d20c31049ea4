// What the address and the browser tab's own storage say of Inspect: its controls, the pin, and the colours.
//
// The tab's copy lives in sessionStorage, so that two tabs never restore each other's. Its value comes from the
// server, see PagePayload.

/** @typedef {{ page?: any, link?: Record<string, string>, tab?: string, first?: boolean, restored?: boolean }} PagePayload */
/** @import { Heatmap } from "../../views/drawing/heatmap.js" */
/** @import { Credited, Place } from "../../views/drawing/payload.js" */

const STORED = "workbench-inspect"; // also read by the page's load event
const LINKED = [
  "task",
  "example",
  "saved",
  "preset",
  "regex",
  "kind",
  "scheme",
  "options",
  "compare",
  "compare-options",
  "settings",
];
// The pin, what tokens are coloured by, and which cards are shown in which order.
const PINNED = ["rollout", "k", "t", "colour", "show", "find", "order"];
const TYPING = 60; // milliseconds in which what was typed is painted, before the address is written

/**
 * Where a drawing is looked at, as an address says it: rollout and step count from 1, and a token from 0, as in the
 * details. A step's last token is the step itself. Advantage is what everybody's drawing opens with.
 * @param {Credited | undefined} rollout the pinned one @param {Place | null} pinned @param {string} colour
 */
export function placeOf(rollout, pinned, colour) {
  /** @type {Record<string, string | number>} */
  const place = colour === "advantage" ? {} : { colour };
  if (!rollout || !pinned) return place;
  const k = rollout.stepOf[pinned.t];
  place.rollout = pinned.g + 1;
  if (k >= 0) place.k = k + 1;
  if (rollout.steps?.[k]?.last !== pinned.t) place.t = pinned.t;
  return place;
}

/**
 * The pin that an address asks for, null where the drawing has none such.
 * @param {URLSearchParams} parameters @param {Credited[]} rollouts @returns {Place | null}
 */
export function pinAsked(parameters, rollouts) {
  const count = (/** @type {string} */ name) => {
    const text = parameters.get(name) ?? "";
    return /^\d{1,9}$/.test(text) ? Number(text) : -1;
  };
  const [g, token] = [count("rollout") - 1, count("t")];
  const rollout = rollouts[g];
  const t = rollout?.advantages && token in rollout.texts ? token : rollout?.steps?.[count("k") - 1]?.last;
  return t === undefined ? null : { g, t };
}

/**
 * Which cards are shown, in which order; nothing of what everybody's drawing opens with.
 * @param {{ filter: string, text: string, order: string }} chosen
 */
export function choiceOf({ filter, text, order }) {
  return { ...(filter && { show: filter }), ...(text && { find: text }), ...(order !== "surprise" && { order }) };
}

/** @param {URLSearchParams} parameters Those of a link that an address has. */
export const linkIn = (parameters) =>
  Object.fromEntries([...parameters].filter(([name, value]) => LINKED.includes(name) && value));

class Address {
  constructor() {
    this.tab = ""; // how the workbench knows this tab
    /** @type {Record<string, string>} the parameters for what is on screen */
    this.link = {};
    /** @type {Heatmap | null} the heatmap on Inspect */
    this.drawing = null;
    /** @type {Place | null} the pinned token */
    this.pinned = null;
    this.changed = false; // whether the address speaks of Inspect yet
    this.writing = 0; // the timer of the next write
    globalThis.addEventListener?.("pagehide", () => this.store({}));
  }

  /** @param {PagePayload} value Keeps what the server says of the controls. */
  keep(value) {
    if (value.tab) this.tab = value.tab;
    if (value.link) this.link = value.link;
    if (!value.first || value.restored) {
      this.store(value);
      this.changed ||= Boolean(value.link) && !value.restored;
    }
    clearTimeout(this.writing);
    this.writing = setTimeout(() => this.write(), TYPING);
  }

  /** @param {PagePayload} value The address is kept beside it: any other one is a link to follow. */
  store({ page }) {
    try {
      const stored = JSON.parse(sessionStorage.getItem(STORED) ?? "{}");
      if (!page && !Object.keys(stored).length) return; // the page is as it opened
      const parts = {
        ...stored,
        ...(page ? { page } : {}),
        address: linkIn(new URL(location.href).searchParams),
      };
      sessionStorage.setItem(STORED, JSON.stringify(parts));
    } catch { /* no storage, or a full one: the controls last until reload */ }
  }

  /** The address's parameters for what is on screen. */
  parameters() {
    const rollout = this.pinned && this.drawing ? this.drawing.data.rollouts[this.pinned.g] : undefined;
    const { drawing } = this;
    const choice = drawing ? choiceOf({ ...drawing.finder.wish, order: drawing.order }) : {};
    return { ...this.link, ...placeOf(rollout, this.pinned, drawing?.colouredBy ?? "advantage"), ...choice };
  }

  /** Writes the address, while Inspect is shown. */
  write() {
    const view = /** @type {HTMLElement | null} */ (document.querySelector("#view"));
    if (!this.changed || !view?.offsetParent) return;
    const url = new URL(location.href);
    /** @type {Record<string, string | number>} */
    const parameters = this.parameters();
    for (const name of [...LINKED, ...PINNED]) {
      if (name in parameters) url.searchParams.set(name, String(parameters[name]));
      else url.searchParams.delete(name);
    }
    if (url.href !== location.href) history.replaceState(history.state, "", url);
    this.store({});
  }

  /** A link to what is on screen. */
  href() {
    const url = new URL(location.pathname, location.origin);
    for (const [name, value] of Object.entries(this.parameters())) url.searchParams.set(name, String(value));
    return url.href;
  }

  moved() {
    this.changed = true;
    this.write();
  }

  /** @param {Place | null} pinned */
  pin(pinned) {
    this.pinned = pinned;
    this.moved();
  }

  /** @param {Heatmap} drawing The first one is coloured and pinned as the address says; then the address follows it. */
  follow(drawing) {
    if (this.drawing === drawing) return;
    this.drawing = drawing;
    drawing.onColour = () => this.moved();
    for (const type of ["input", "change", "click"]) drawing.finder.node.addEventListener(type, () => this.moved());
    const { searchParams } = new URL(location.href);
    if (searchParams.has("run")) return;
    drawing.colourBy(searchParams.get("colour"));
    drawing.finder.restore({
      filter: searchParams.get("show") ?? "",
      text: searchParams.get("find") ?? "",
      order: searchParams.get("order") ?? "",
    });
    const asked = pinAsked(searchParams, drawing.data.rollouts);
    if (!asked) return;
    drawing.pin(asked.g, asked.t);
    document.querySelector(`#heatmap .rollout[data-g="${asked.g}"]`)?.scrollIntoView({ block: "center" });
  }
}

export const address = new Address();
