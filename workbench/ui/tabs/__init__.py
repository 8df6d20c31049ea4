"""The page's tabs: widgets and their wiring to ``handlers``, no logic of their own."""
