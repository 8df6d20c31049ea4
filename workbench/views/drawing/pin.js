// The token that a drawing explains: marked on its card and in the overview. It is the one that somebody pinned, or else,
// until the panel is closed, the one that the drawing opens with.

/** @import { Credited, Measure, Place, Prepared, Why } from "./payload.js" */
/**
 * @typedef {Object} View What a token is pinned on; its data and measure change with every drawing.
 * @property {Prepared} data
 * @property {Measure} measure
 * @property {HTMLElement} cards
 * @property {{ mark: (pinned: Place | null) => void }} overview
 * @property {{ explain: (data: Prepared, pinned: Place) => HTMLElement | null }} lens
 * @property {((rollout: number, token: number, which: "a" | "b") => Promise<Why | null | undefined>) | null} explain
 * @property {(article: Element) => Element} drawTokens
 * @property {() => void} unpin
 */

import { el } from "../dom.js";
import { firstOf } from "./copies.js";
import { leastLikely, pinnedDetails } from "./details.js";
import { uncover } from "./focus.js";

const HINT = "Why this colour? Choose a token, a step or a square of the map.";

export class Pin {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {Place | null} kept through redraws, so that its numbers follow an edit */
    this.place = null;
    this.isOwn = false; // whether somebody pinned it
    this.isClosed = false; // whether somebody closed the panel
    /** @type {Set<string>} the folds of the panel that are open */
    this.unfolded = new Set();
    this.details = el("section", { class: "details", "aria-label": "Why this colour", hidden: true });
    new ResizeObserver(() => this.uncover()).observe(this.details); // grown, it would cover what it is about
  }

  /** @param {Place} place Pins a token. */
  set(place) {
    this.place = place;
    this.isOwn = true;
  }

  /** Forgets the token; whether the details had the focus. */
  clear() {
    const hadFocus = this.details.contains(document.activeElement);
    this.place = null;
    this.isOwn = false;
    this.isClosed = true;
    this.unmark();
    this.details.replaceChildren(el("p", { class: "hint" }, HINT));
    this.details.hidden = !this.view.data.opens;
    return hadFocus;
  }

  /** Takes the token that the drawing opens with, unless one is pinned or the panel was closed. */
  open() {
    if (this.isOwn || this.isClosed) return;
    const [g, k] = this.view.data.opens ?? [-1, -1];
    const rollout = this.view.data.rollouts[g];
    const step = rollout?.steps?.[k];
    this.place = step ? { g: firstOf(this.view.data, g), t: leastLikely(rollout, step) } : null;
    if (!this.place) this.details.hidden = true;
  }

  /** Whether the drawing still has the token. */
  get isDrawn() {
    const { place, view } = this;
    const rollout = place && view.data.rollouts[place.g];
    return Boolean(place && rollout?.steps && place.t < rollout.texts.length);
  }

  /** Marks the token and says why it has its colour. */
  show() {
    const { place, view } = this;
    if (!place) return;
    const article = view.cards.querySelector(`.rollout[data-g="${place.g}"]`);
    if (article) view.drawTokens(article);
    this.mark();
    this.details.replaceChildren(...pinnedDetails(view.data, place, view.measure, {
      onUnpin: () => view.unpin(),
      ask: (rollout, which) => this.ask(rollout, which),
      loss: view.lens.explain(view.data, place),
      unfolded: this.unfolded,
    }));
    this.details.hidden = false;
    this.details.classList.toggle("own", this.isOwn);
  }

  /** Marks the token on its card, and its step there and in the overview. */
  mark() {
    const { place, view } = this;
    if (!place) return;
    const { g, t } = place;
    const k = view.data.rollouts[g].stepOf[t];
    const marked = [`.text i[data-t="${t}"]`, ...(k < 0 ? [] : [`[data-k="${k}"]`])];
    const inCard = marked.map((selector) => `.rollout[data-g="${g}"] ${selector}`).join();
    this.unmark();
    for (const node of view.cards.querySelectorAll(inCard)) node.classList.add("pinned");
    view.overview.mark(place);
  }

  /** Scrolls it into view, above the panel where that lies over the cards. */
  uncover() {
    if (!this.isOwn) return;
    uncover(this.view.cards.querySelector(".text:not(.second) i.pinned"), this.details);
  }

  unmark() {
    for (const node of this.view.cards.querySelectorAll(".pinned")) node.classList.remove("pinned");
    this.view.overview.mark(null);
  }

  /** @param {Credited} rollout @param {"a" | "b"} which Asks for the terms that the payload did not bring, once all else is painted. */
  ask(rollout, which) {
    const { place, view } = this;
    if (!rollout.advantages || !view.explain || !place) return;
    const { data } = view, isStill = () => place === this.place && data === view.data;
    requestAnimationFrame(() =>
      setTimeout(async () => {
        if (!isStill()) return; // another token or another drawing by now
        const why = await view.explain?.(place.g, place.t, which).catch(() => null); // the rest stands without it
        if (!why || !isStill()) return;
        (rollout.why ??= []).push(why);
        this.show();
        this.uncover();
      })
    );
  }
}
