// Pre-flight findings and exploit probes, drawn from JSON values.
//
// Findings: {"findings": [{name, level, value, meaning, advice}, …]}, or {"busy": what is going on}.
// Probes: {"schemes", "edits": [{name, summary}], "rows": [one for each edit and scheme], "leftOut", "threshold"}.
(() => {
  if (globalThis.WorkbenchChecks) return;
  const { el, follow } = globalThis.WorkbenchPage;
  const MARKS = { ok: "✓", check: "check", stop: "stop" };
  const plural = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

  function lines(findings) {
    return el("ul", { class: "findings" }, ...findings.map((one) => el("li", { class: one.level },
      el("span", { class: "mark" }, MARKS[one.level]), el("span", { class: "name" }, one.name), el("b", {}, one.value),
      el("span", { class: "meaning" }, one.meaning, ...(one.advice ? ["; ", el("em", {}, one.advice)] : [])))));
  }

  function verdict(findings) {
    const stop = findings.filter((one) => one.level === "stop");
    const check = findings.filter((one) => one.level === "check");
    if (stop.length) return { level: "stop", text: `nothing would be learnt: ${stop.map((one) => `${one.name} ${one.value}`).join(", ")}` };
    if (check.length) return { level: "check", text: `${plural(check.length, "thing")} to check: ${check.map((one) => `${one.name} ${one.value}`).join(", ")}` };
    return { level: "ok", text: `all ${findings.length} in order` };
  }

  // One line about the group on screen, which opens into all findings.
  function strip(handles) {
    let open = false;
    follow(handles, (root, value) => {
      if (!value?.findings) { root.replaceChildren(); return; }
      const { level, text } = verdict(value.findings);
      const details = el("details", { class: `strip ${level}`, open },
        el("summary", {}, el("b", {}, "Pre-flight"), " of this group: ", text), lines(value.findings));
      details.addEventListener("toggle", () => { open = details.open; });
      root.replaceChildren(details);
    });
  }

  function findings(handles) {
    follow(handles, (root, value) => {
      root.setAttribute("aria-live", "polite");
      if (value?.busy) { root.replaceChildren(el("p", { class: "busy" }, value.busy)); return; }
      if (!value?.findings) { root.replaceChildren(); return; }
      const { level, text } = verdict(value.findings);
      root.replaceChildren(el("p", { class: `verdict ${level}` }, text), lines(value.findings));
    });
  }

  function probes(handles) {
    follow(handles, (root, value) => {
      if (!value?.rows) { root.replaceChildren(); return; }
      const said = el("p", { class: "said", role: "status" });
      const cellOf = (edit, scheme) => value.rows.find((row) => row.edit === edit && row.scheme === scheme);
      const signed = (x) => (Math.abs(x) < 0.005 ? "0" : `${x > 0 ? "+" : "\u2212"}${Math.abs(x).toFixed(2)}`);
      const cell = (row) => {
        if (row.largest_gain === null) return el("td", { class: "none", title: row.verdict }, "–");
        const tell = () => { said.textContent = `${row.edit} under ${row.scheme}: pays for no content: ${row.verdict}.`; };
        return el("td", { class: row.pays_for_no_content ? "pays" : "" }, el("button", { type: "button", title: row.verdict, onclick: tell },
          `${signed(row.largest_gain)}${row.pays_for_no_content ? " ▲" : ""}`));
      };
      const paying = value.schemes.filter((scheme) => value.rows.some((row) => row.scheme === scheme && row.pays_for_no_content));
      root.replaceChildren(
        el("p", {}, el("b", {}, `${paying.length} of ${plural(value.schemes.length, "scheme")}`), ` pay for some edit that adds no content (▲, gains over ${value.threshold} of the group's own spread). Click a number for its verdict.`),
        el("div", { class: "probe-table", tabindex: 0, role: "region", "aria-label": "What each edit gains under each scheme" },
          el("table", {},
            el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "edit"), ...value.schemes.map((scheme) => el("th", { scope: "col" }, scheme)))),
            el("tbody", {}, ...value.edits.map((edit) => el("tr", {}, el("th", { scope: "row", title: edit.summary }, edit.name), ...value.schemes.map((scheme) => cell(cellOf(edit.name, scheme)))))))),
        said,
        ...Object.entries(value.leftOut).map(([scheme, why]) => el("p", { class: "left-out" }, `${scheme} left out: ${why}`)));
    });
  }

  globalThis.WorkbenchChecks = { strip, findings, probes };
})();
