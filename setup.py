"""What pyproject.toml cannot say: in a wheel, the folder ``assets`` is the package ``workbench.data``."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["workbench*"]), "workbench.data"],
    package_dir={"workbench.data": "assets"},
)
