"""Handlers of the page, without Gradio: plain values in, frozen views out. Most of the page is tested here."""
