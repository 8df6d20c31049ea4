// What tokens and step chips can be coloured by, and the colour of a value.
(() => {
  const H = (globalThis.WorkbenchHeatmap ??= {});
  if (H.MEASURES) return; // a notebook holds one copy of this script per output
  const { number, signed, glyph } = H;

  const BINS = 10; // colour steps each side of zero; with zero itself 21

  // What tokens and step chips can be coloured by. `token` and `step` read a value, null where there is none; `r` is a
  // rollout, or its twin under the second scheme (r.twin) where two are compared; a measure without `step` gives a step
  // its tokens' mean. `short` is the name on the chips' key; `derived` are those that no other row of a token's facts has.
  const MEASURES = [
    {
      key: "advantage", label: "advantage", short: "adv.", signed: true,
      has: (data) => data.rollouts.some((r) => r.advantages),
      token: (r, t) => r.advantages[t],
      step: (r, k) => r.advantages[r.steps[k].last],
    },
    {
      key: "difference", label: "difference B − A", short: "B − A", signed: true, one: true, derived: true,
      has: (data) => Boolean(data.other),
      token: (r, t) => r.twin.advantages[t] - r.advantages[t],
      step: (r, k) => r.twin.advantages[r.steps[k].last] - r.advantages[r.steps[k].last],
    },
    // What a token weighs in the loss: its advantage times the loss's length normaliser (1 is an even share).
    ...["grpo", "bnpo", "dapo", "dr_grpo"].map((loss) => ({
      key: `weight-${loss}`, label: `weight in the ${loss} loss`, short: "weight", signed: true, derived: true,
      has: (data) => Boolean(data.normalisers),
      token: (r, t) => r.advantages[t] * r.normalisers[loss],
      step: (r, k) => r.advantages[r.steps[k].last] * r.normalisers[loss],
    })),
    {
      key: "reward", label: "step score", short: "score", signed: true,
      has: (data) => data.rollouts.some((r) => r.steps?.some((s) => s.reward !== null)),
      token: (r, t) => ofStep(r, t, "reward"),
      step: (r, k) => r.steps[k].reward,
    },
    {
      key: "normalised", label: "normalised reward", short: "r̃", signed: true,
      has: (data) => data.rollouts.some((r) => r.steps?.some((s) => s.normalised !== null)),
      token: (r, t) => ofStep(r, t, "normalised"),
      step: (r, k) => r.steps[k].normalised,
    },
    {
      key: "logprob", label: "log-prob", short: "mean log-p", signed: false, negative: true,
      has: (data) => data.rollouts.some((r) => r.logprobs),
      token: (r, t) => r.logprobs?.[t] ?? null,
    },
    {
      key: "entropy", label: "entropy", short: "mean entr.", signed: false,
      has: (data) => data.rollouts.some((r) => r.entropies),
      token: (r, t) => r.entropies?.[t] ?? null,
    },
    // Against a reference policy, with d = log π_ref − log π: its share of the estimator k3, e^d − d − 1, and the ratio.
    {
      key: "kl", label: "KL k3 to the reference", short: "mean KL", signed: false, derived: true,
      has: (data) => data.rollouts.some((r) => r.reference && r.logprobs),
      token: (r, t) => (against(r, t) === null ? null : Math.expm1(against(r, t)) - against(r, t)),
    },
    {
      key: "ratio", label: "log ratio π / π_ref", short: "mean log ratio", signed: true, derived: true,
      has: (data) => data.rollouts.some((r) => r.reference && r.logprobs),
      token: (r, t) => (against(r, t) === null ? null : -against(r, t)),
    },
  ];

  const isMean = (measure) => !measure.step;
  const ofWhole = (measure, r, k) => (isMean(measure) ? meanToken(measure, r, r.steps[k]) : measure.step(r, k));

  const digits = (measure) => (isMean(measure) ? 3 : 2); // most tokens are near certain: means are small

  function meanToken(measure, r, step) {
    const values = [];
    for (let t = step.first; t <= step.last; t++) values.push(measure.token(r, t));
    const known = values.filter((value) => value !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  }

  function against(r, t) {
    if (!r.reference || !r.logprobs) return null;
    const d = r.reference[t] - r.logprobs[t];
    return Math.abs(d) < 2e-5 ? 0 : d; // both come with five decimals
  }

  function ofStep(rollout, token, field) {
    const k = rollout.stepOf[token];
    return k < 0 ? null : rollout.steps[k][field];
  }

  // Where the colour scale ends, and whether values lie beyond it. It ends where `fixed` says, or else at the 98th
  // percentile of the size, so that one outlier does not pale everything else.
  function rangeOf(data, measure, fixed = null) {
    const sizes = [];
    let [least, most] = [0, 0];
    for (const r of data.rollouts) {
      for (let t = 0; t < r.texts.length; t++) {
        for (const one of r.twin && !measure.one ? [r, r.twin] : [r]) {
          const value = measure.token(one, t);
          if (value === null) continue;
          sizes.push(Math.abs(value));
          if (value < least) least = value;
          else if (value > most) most = value;
        }
      }
    }
    const limit = fixed ?? percentile(sizes);
    return { limit, below: least < -limit, above: most > limit };
  }

  function percentile(sizes) {
    if (!sizes.length) return 0;
    const sorted = Float64Array.from(sizes).sort();
    const clipped = sorted[Math.floor(0.98 * (sorted.length - 1))];
    return clipped || sorted[sorted.length - 1]; // mostly zeros: the scale is that of the rest
  }

  function tint(value, limit, measure) {
    if (value === null || value === undefined || !limit) return "";
    const bin = Math.max(-BINS, Math.min(BINS, Math.round((value / limit) * BINS)));
    if (!bin) return "";
    return `${measure.signed ? (bin > 0 ? "p" : "n") : "q"} s${Math.abs(bin)}`;
  }

  // A step's value as its chip says it.
  function stepText(measure, r, k) {
    const value = ofWhole(measure, r, k);
    if (value === null) return "–";
    return measure.signed ? `${glyph(value)}${number(Math.abs(value), digits(measure))}` : number(value, digits(measure));
  }

  // The same for a reader that hears it.
  function stepSaid(measure, r, k) {
    const value = ofWhole(measure, r, k);
    return value === null ? "" : `${isMean(measure) ? "mean " : ""}${measure.label} ${(measure.signed ? signed : number)(value, digits(measure))}`;
  }

  Object.assign(H, { MEASURES, BINS, rangeOf, tint, ofWhole, stepText, stepSaid });
})();
