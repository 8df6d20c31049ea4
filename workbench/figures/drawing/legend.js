// The line above the cards: what they are coloured by, on which scale, and in which order they stand.
//
// The scale ends where the number field says. An empty field is the 98th percentile of what is drawn, anew with every
// drawing; "hold" writes the present end into it, so that a colour goes on meaning the same number.
(() => {
  const H = (globalThis.WorkbenchHeatmap ??= {});
  if (H.makeLegend) return; // a notebook holds one copy of this script per output
  const { el, number, signed, BINS } = H;

  const MINUS = "\u2212";
  const short = (size) => `${Number(size.toPrecision(3))}`;

  // The values that one swatch stands for. Those of a measure that is never above zero grow downwards.
  function swatchTitle(bin, limit, measure) {
    const width = limit / BINS;
    const digits = Math.min(20, Math.max(0, 1 - Math.floor(Math.log10(width))));
    const at = (place) => (measure.signed ? signed : number)((measure.negative ? -place : place) * width, digits);
    if (Math.abs(bin) === BINS) return `${at(bin - Math.sign(bin) / 2)} and ${bin < 0 || measure.negative ? "below" : "above"}`;
    return `${bin || measure.signed ? at(bin - 0.5) : "0"} to ${at(bin + 0.5)}`;
  }

  function swatch(bin, limit, measure) {
    const side = measure.signed ? (bin > 0 ? "p" : "n") : "q";
    return el("i", { class: bin ? `${side} s${Math.abs(bin)}` : "", title: limit ? swatchTitle(bin, limit, measure) : null });
  }

  function makeLegend({ onMeasure, onEnd, onHold, onEdges, onOrder }) {
    const colourBy = el("select", { "aria-label": "Colour by", class: "colour-by", onchange: () => onMeasure(colourBy.value) });
    const low = el("span", { class: "end" });
    const swatches = el("span", { class: "swatches", role: "img" });
    const sign = el("span", { class: "end" });
    const end = el("input", {
      type: "number", step: "any", class: "range-end", "aria-label": "Colours end at; empty for the 98th percentile",
      title: "Where the colours end; empty: at the 98th percentile of what is drawn",
      onchange: () => onEnd(Math.abs(end.value) || null),
    });
    const hold = el("input", { type: "checkbox", class: "range-hold", onchange: () => onHold(hold.checked) });
    const edges = el("input", { type: "checkbox", class: "token-edges", onchange: () => onEdges(edges.checked) });
    const orderBy = el("select", { "aria-label": "Order", class: "order-by", onchange: () => onOrder(orderBy.value) },
      el("option", { value: "sampled" }, "as sampled"), el("option", { value: "best" }, "best first"));
    const node = el("div", { class: "legend", hidden: true },
      el("label", {}, "Colour by ", colourBy),
      el("span", { class: "scale" }, low, swatches, sign, end,
        el("label", { title: "Keep this range while the drawing changes, so that a colour goes on meaning the same number" }, hold, "hold")),
      el("label", { class: "edged", title: "A thin line where a token begins" }, edges, "token edges"),
      el("label", { class: "order" }, "Order ", orderBy));

    function offer(measures, chosen) {
      node.hidden = !measures.length;
      const offered = measures.map((one) => one.key).join();
      if (colourBy.dataset.offered !== offered) { // a list that somebody has open is left alone
        colourBy.dataset.offered = offered;
        colourBy.replaceChildren(...measures.map((one) => el("option", { value: one.key }, one.label)));
      }
      colourBy.value = chosen.key;
    }

    // `fixed` says whether the end was set or held by hand.
    function show(measure, { limit, below, above }, fixed) {
      const bins = Array.from({ length: measure.signed ? 2 * BINS + 1 : BINS + 1 }, (_, i) => (measure.signed ? i - BINS : i));
      low.textContent = measure.signed && limit ? `${below ? "≤ " : ""}${MINUS}${short(limit)}` : "0";
      const [beyond, plus] = measure.negative ? [below ? "≤ " : "", MINUS] : [above ? "≥ " : "", measure.signed ? "+" : ""];
      sign.textContent = limit ? `${beyond}${plus}` : "";
      if (document.activeElement !== end) end.value = fixed ? short(limit) : ""; // not under the hands of who types in it
      end.placeholder = short(limit);
      hold.checked = fixed;
      hold.disabled = !limit;
      swatches.replaceChildren(...bins.map((bin) => swatch(bin, limit, measure)));
      const scale = measure.signed ? "Colour scale: orange below zero, blue above, ends at " : `Colour scale from 0 to ${measure.negative ? MINUS : ""}`;
      swatches.setAttribute("aria-label", `${scale}${short(limit)}, ${fixed ? "as set" : "the 98th percentile"}${below || above ? "; some values lie beyond it" : ""}`);
    }

    // Whether a measure by that name is offered; if so the list shows it.
    function choose(key) {
      const known = [...colourBy.options].some((option) => option.value === key);
      if (known) colourBy.value = key;
      return known;
    }

    return { node, offer, show, choose };
  }

  Object.assign(H, { makeLegend });
})();
