// What the unit tests of the scripts assert with; a difference shows both values.

export function equal(actual, expected) {
  const [have, want] = [actual, expected].map((value) => JSON.stringify(value));
  if (have !== want) throw new Error(`${have} instead of ${want}`);
}

export function near(actual, expected, tolerance = 1e-9) {
  const all = [actual].flat().length === [expected].flat().length;
  const off = [actual].flat().some((value, i) => !(Math.abs(value - [expected].flat()[i]) <= tolerance));
  if (!all || off) throw new Error(`${JSON.stringify(actual)} instead of about ${JSON.stringify(expected)}`);
}
