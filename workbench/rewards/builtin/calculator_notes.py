"""GSM8K's calculator notes as a step reward: is the arithmetic in ``<<16-3=13>>`` right?

Notes come with GSM8K's answers (Cobbe et al. 2021, arXiv 2110.14168) and with those of models taught on them. Like
every built-in the function stands alone, so that its source runs when pasted into the page's editor.
"""

from __future__ import annotations


def calculator_notes(prompt: object, step: str, **columns: object) -> float | None:
    """1 if every calculator note of the step, like `<<16-3=13>>`, is right, 0 if one is wrong, None if it has none.

    Both sides are worked out exactly, with + - * / // ( ), decimals, thousands' commas, $ and %. A result with decimals
    may be rounded in its last one, and any to one part in a billion. What is no arithmetic, like `<<2*x=6>>`, is not
    right.
    """
    import re
    from fractions import Fraction

    def check(note: str) -> bool:
        sides = note.split("=")
        if len(sides) < 2 or len(note) > 2000:
            return False
        try:
            values = [value(side) for side in sides]
        except (ValueError, ZeroDivisionError):
            return False
        truth, *claims = values
        return all(abs(truth - claim) <= allowed(side, truth) for side, claim in zip(sides[1:], claims, strict=True))

    def allowed(claim: str, truth: Fraction) -> Fraction:
        """How far a claim may be off: half of its last decimal, where it is a plain number with some."""
        plain = re.fullmatch(r"\s*[-$\d,]*\.(\d+)\s*(%?)\s*", claim)
        rounded = Fraction(1, 2 * 10 ** (len(plain[1]) + 2 * len(plain[2]))) if plain else Fraction(0)
        return max(rounded, max(Fraction(1), abs(truth)) / 10**9)

    def value(text: str) -> Fraction:
        """sum = product ([+-] product)*, product = factor ((*|/|//) factor)*, factor = [+-]* (number | ( sum )) %*"""
        spelled = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.replace("×", "*").replace("÷", "/").replace("−", "-"))
        parts: list[str] = re.findall(r"\d+\.?\d*|\.\d+|//|[-+*/()%]|[^\s$]", spelled)
        at = depth = 0

        def take(*choices: str) -> str:
            nonlocal at
            at += (taken := at < len(parts) and parts[at] in choices)
            return parts[at - 1] if taken else ""

        def total() -> Fraction:
            result = product()
            while sign := take("+", "-"):
                result = result + product() if sign == "+" else result - product()
            return result

        def product() -> Fraction:
            result = factor()
            while sign := take("*", "/", "//"):
                other = factor()
                result = result * other if sign == "*" else result / other if sign == "/" else Fraction(result // other)
            return result

        def factor() -> Fraction:
            nonlocal at, depth
            negative = False
            while sign := take("+", "-"):
                negative ^= sign == "-"
            if take("("):
                depth += 1
                if depth > 50:
                    raise ValueError("nested too deeply")
                result = total()
                depth -= 1
                if not take(")"):
                    raise ValueError("a parenthesis is not closed")
            elif at < len(parts) and re.fullmatch(r"\d+\.?\d*|\.\d+", parts[at]):
                result = Fraction(parts[at].rstrip("."))
                at += 1
            else:
                raise ValueError("a number is missing")
            while take("%"):
                result /= 100
            return -result if negative else result

        result = total()
        if at < len(parts):
            raise ValueError(f"{parts[at]} is no arithmetic")
        return result

    notes = re.findall(r"<<((?:(?!<<|>>).)*)>>", step)
    return float(all(map(check, notes))) if notes else None
