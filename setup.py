"""What pyproject.toml cannot say: in a wheel ``assets`` is ``workbench.data``, ``examples`` ``workbench.programs``."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["workbench*"]), "workbench.data", "workbench.programs"],
    package_dir={"workbench.data": "assets", "workbench.programs": "examples"},
)
