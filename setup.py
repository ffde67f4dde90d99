"""Maps the top-level folders to packages of the namespace `wattkeeper`.

Everything else stands in pyproject.toml. The mapping is here because TOML cannot search for the
sub-packages: `policies/configure/` becomes `wattkeeper.policies.configure` without being listed.
`wattkeeper` itself has no folder and no `__init__.py`: it is a namespace package.
"""

from setuptools import find_packages, setup

FLOORS = ("policies", "traces", "sim", "live", "scenarios")

packages = [
    f"wattkeeper.{name}"
    for floor in FLOORS
    for name in (floor, *(f"{floor}.{sub}" for sub in find_packages(floor)))
]

setup(
    packages=packages,
    package_dir={f"wattkeeper.{floor}": floor for floor in FLOORS},
    include_package_data=False,  # package_data alone decides; folders of data are not packages
    package_data={
        **{f"wattkeeper.{floor}": ["py.typed", "**/*.json"] for floor in FLOORS},
        "wattkeeper.scenarios": ["py.typed", "**/*.json", "**/*.yaml"],
    },
)
