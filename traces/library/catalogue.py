"""Public traces that `wattkeeper traces fetch` knows by name.

wattkeeper includes none of their data. A SHA-256 is listed only if it is published: by the
origin (Git LFS pointers, the README of clusterdata), by others who pinned the same file, or
by the file at a pinned commit.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from wattkeeper.policies.errors import InputError


class File(NamedTuple):
    """One file to download.

    Attributes:
        url: Its address.
        sha256: Digest (hex) of its bytes; None if unknown.
        size_bytes: Its size; None if unknown.
        members: For an archive (tar or zip), the ends of the paths of the members to import, each
            matching one member; empty if the file itself is imported.
    """

    url: str
    sha256: str | None = None
    size_bytes: int | None = None
    members: tuple[str, ...] = ()


class WellKnown(NamedTuple):
    """A public trace.

    Attributes:
        name: As written on the command line, and its name in the library.
        summary: One line.
        format: Import format that reads it.
        licence: SPDX name or what is known.
        page: Address of its description.
        files: Files to download.
        as_folder: Whether the format takes the folder of the files instead of the files.
    """

    name: str
    summary: str
    format: str
    licence: str
    page: str
    files: tuple[File, ...]
    as_folder: bool = False


_RAW: Final = "https://raw.githubusercontent.com"
_PAI: Final = "https://aliopentrace.oss-cn-beijing.aliyuncs.com/v2020GPUTraces"
_OPENB: Final = (
    f"{_RAW}/alibaba/clusterdata/50a91c7c74abe3b658188dc78ac1dd302970d40c"
    "/cluster-trace-gpu-v2023/csv"
)
_SPOT: Final = (
    f"{_RAW}/alibaba/clusterdata/0d0f3f1efdbf1add6a7bcc63676eafbd1eb11f71"
    "/cluster-trace-v2026-spot-gpu"
)
_ACME: Final = "https://huggingface.co/datasets/Qinghao/AcmeTrace/resolve/main/data/job_trace"
_GAVEL: Final = f"{_RAW}/stanford-futuredata/gavel/master/scheduler"
_HELIOS_CLUSTERS: Final = ("Earth", "Saturn", "Uranus", "Venus")
_ZEUS_FOLDER: Final = "examples/research_reproducibility/zeus_nsdi23/trace"
_ZEUS_FILES: Final = tuple(
    File(f"{_RAW}/ml-energy/zeus/{commit}/{_ZEUS_FOLDER}/{name}", sha256, size_bytes)
    for commit, name, sha256, size_bytes in (
        ("3db0d49b9cdb39103b07ed647bd12bdd0717e2a0", "summary_train.csv",
         "076b35615349ee624403006e5ad67fd9ebda92af690c7750f8bb0c2ab92c0cf4", 186_977),
        ("048db45d828bc928549e85c3eb9bbfdf683b8b11", "summary_power_a40.csv",
         "f4ec111fc9b06b353182faab9160ecb1236a486b2741ed93383b80497332031e", 29_641),
        ("3db0d49b9cdb39103b07ed647bd12bdd0717e2a0", "summary_power_p100.csv",
         "158e9a6784b6e2d26710529b132cf173b227dc8688f4931c19a637bce2b7503b", 18_163),
        ("3db0d49b9cdb39103b07ed647bd12bdd0717e2a0", "summary_power_rtx6000.csv",
         "edccecc7f8b7a6102962b03f0f37767dd9cd2f03469ebccadc9805e82901bdc4", 27_704),
        ("43297f658bb9ba05e8b41e2d0cc85c91fff242c7", "summary_power_v100.csv",
         "f0b066dd1a451bd78f730e001ac3a7c411979bc7f0846f12c1a9fb604aa90628", 32_534),
    )
)  # fmt: skip


def _helios(cluster: str) -> WellKnown:
    return WellKnown(
        name=f"helios-{cluster.lower()}",
        summary=f"SenseTime Helios, cluster {cluster}: all jobs of April to September 2020",
        format="helios",
        licence="CC-BY-4.0",
        page="https://github.com/S-Lab-System-Group/HeliosData",
        files=(
            File(
                f"{_RAW}/S-Lab-System-Group/HeliosData/master/data.zip",
                "3d22a5f6c0ae669e2fcbfe4200fa9c48664507bc397c677bad8f085222c032ac",
                36_437_672,
                (f"{cluster}/cluster_log.csv",),
            ),
        ),
    )


def _acme(cluster: str) -> WellKnown:
    return WellKnown(
        name=f"acme-{cluster}",
        summary=f"Shanghai AI Lab Acme, cluster {cluster.title()}: jobs of March to August 2023",
        format="acme",
        licence="CC-BY-4.0",
        page="https://huggingface.co/datasets/Qinghao/AcmeTrace",
        files=(File(f"{_ACME}/trace_{cluster}.csv"),),
    )


_ALL: Final = (
    WellKnown(
        name="philly",
        summary="Microsoft Philly: 117,325 jobs of August to December 2017, with attempts",
        format="philly-json",
        licence="CC-BY-4.0",
        page="https://github.com/msr-fiddle/philly-traces",
        files=(
            File(
                "https://media.githubusercontent.com/media/msr-fiddle/philly-traces/master"
                "/trace-data.tar.gz",
                "2037ccf63a725a02be718b0e1aeee6142c90b7f62d0d849295120e9f6ba13d2c",
                1_055_988_361,
                ("cluster_job_log",),
            ),
        ),
    ),
    WellKnown(
        name="philly-csv",
        summary="Microsoft Philly as Pollux (OSDI 2021) simplified it: 82,247 jobs in 109 days",
        format="philly-csv",
        licence="Apache-2.0; from msr-fiddle/philly-traces, CC-BY-4.0",
        page="https://github.com/petuum/adaptdl/tree/osdi21-artifact",
        files=(
            File(
                f"{_RAW}/petuum/adaptdl/de25dcc90c350b8ade3a710e437a651a8d2efae6"
                "/simulator/traces/philly.csv",
                "ebffb3dd1589bdf4e7bcd74496201c5ded1d557d498ee14f560463f37ec353da",
                3_444_496,
            ),
        ),
    ),
    *(_helios(cluster) for cluster in _HELIOS_CLUSTERS),
    WellKnown(
        name="pai-2020",
        summary="Alibaba PAI: jobs and tasks of July and August 2020 on 6,500 GPUs",
        format="pai-2020",
        licence="free to use, with citation (alibaba/clusterdata)",
        page="https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2020",
        files=(
            File(
                f"{_PAI}/pai_job_table.tar.gz",
                "5aad7f7caac501136d14ed6a48e40546f825d7b0617a3a4f337e2348fe0a6cb0",
                62_065_432,
                ("pai_job_table.csv",),
            ),
            File(
                f"{_PAI}/pai_task_table.tar.gz",
                "cd1d6dc3215d2a8607ccf6b6dd952b5db776df86926c73259fea7c1499ac40e5",
                35_514_117,
                ("pai_task_table.csv",),
            ),
        ),
    ),
    WellKnown(
        name="openb-2023",
        summary="Alibaba 2023 (FGD): 8,152 pods, many on parts of a GPU; 1,213 GPU nodes",
        format="openb-2023",
        licence="free to use, with citation (alibaba/clusterdata)",
        page="https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023",
        files=(
            File(
                f"{_OPENB}/openb_pod_list_default.csv",
                "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
                575_468,
            ),
            File(
                f"{_OPENB}/openb_node_list_gpu_node.csv",
                "2beca64b4d3dfa342036a34b56a495c6cef9225db836c81f541282cb1df320b5",
                42_353,
            ),
        ),
    ),
    *(_acme(cluster) for cluster in ("kalos", "seren")),
    WellKnown(
        name="spot-2026",
        summary="Alibaba 2026 (GFS): high-priority and spot jobs; 4,278 nodes of six GPU types",
        format="spot-2026",
        licence="none stated (alibaba/clusterdata)",
        page="https://github.com/alibaba/clusterdata/tree/master/cluster-trace-v2026-spot-gpu",
        files=(
            File(
                f"{_SPOT}/job_info_df.csv",
                "113ccee4c28f5c3bbaaca974cd164b9280b7d4c39e53b745443b28eea05e03dd",
            ),
            File(
                f"{_SPOT}/node_info_df.csv",
                "1aba161961a5a4a1a61aa581383c5e5abe3400b59f8597ba8c4eef7597bc9d18",
                78_330,
            ),
        ),
    ),
    WellKnown(
        name="zeus-nsdi23",
        summary="Zeus (NSDI 2023): profiles of six workloads on four GPU types",
        format="zeus-nsdi23",
        licence="Apache-2.0",
        page="https://github.com/ml-energy/zeus",
        as_folder=True,
        files=_ZEUS_FILES,
    ),
    WellKnown(
        name="gavel",
        summary="Gavel (OSDI 2020): jobs of its physical cluster; steps a second on three GPUs",
        format="gavel",
        licence="MIT",
        page="https://github.com/stanford-futuredata/gavel",
        files=(
            File(f"{_GAVEL}/traces/physical_cluster/max_min_fairness.trace"),
            File(
                f"{_GAVEL}/simulation_throughputs.json",
                "17111f7295f03265fd9e5118d7eba31e3dd9d6e50a2e215c13ad3d3f91f74381",
                1_240_176,
            ),
        ),
    ),
    WellKnown(
        name="sdsc-sp2",
        summary="Parallel Workloads Archive, SDSC SP2 1998 to 2000, cleaned: a supercomputer",
        format="swf",
        licence="free to use, with acknowledgement (Parallel Workloads Archive)",
        page="https://www.cs.huji.ac.il/labs/parallel/workload/l_sdsc_sp2/index.html",
        files=(
            File(
                "https://www.cs.huji.ac.il/labs/parallel/workload/l_sdsc_sp2"
                "/SDSC-SP2-1998-4.2-cln.swf.gz"
            ),
        ),
    ),
)

WELL_KNOWN: Final[Mapping[str, WellKnown]] = {trace.name: trace for trace in _ALL}
"""All of them by name."""


def find_known(name: str) -> WellKnown:
    """The well-known trace of a name.

    Raises:
        InputError: If there is none; the message lists those that there are.
    """
    if name not in WELL_KNOWN:
        known = ", ".join(WELL_KNOWN)
        raise InputError(
            f"no well-known trace {name!r}; there are {known}. Others: download them and use "
            "`wattkeeper traces import FORMAT PATH...`"
        )
    return WELL_KNOWN[name]


def listing() -> list[str]:
    """Lines that list all well-known traces: summary, licence, format; address, size, SHA-256."""
    lines = []
    for trace in WELL_KNOWN.values():
        lines.append(f"{trace.name}: {trace.summary}")
        lines.append(f"    format {trace.format}; licence: {trace.licence}; {trace.page}")
        for file in trace.files:
            size = "size unknown" if file.size_bytes is None else f"{file.size_bytes:,} bytes"
            lines.append(f"    {file.url}")
            lines.append(f"        {size}, sha256 {file.sha256 or 'unknown'}")
    return lines
