"""What pyproject.toml cannot say: ``assets`` is ``workbench.shipped`` in a wheel, ``examples`` ``programs``."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["workbench*"]), "workbench.shipped", "workbench.programs"],
    package_dir={"workbench.shipped": "assets", "workbench.programs": "examples"},
)
