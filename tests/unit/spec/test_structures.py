import msgspec
import pytest

from tailtrain.spec import (
    Q16_16,
    DatasetInfo,
    DistributedTrainingConfig,
    NetworkNode,
    NetworkResources,
    NodeAssignment,
    PipelinePhase,
    TrainingConfiguration,
    TrainingGuarantees,
    lean_default_config,
)
from tailtrain.spec.defaults import ALL_NODES, QFOX

# As the specification's text has them.
FIELDS: dict[type[msgspec.Struct], str] = {
    Q16_16: "raw",
    NetworkNode: "hostname tailscaleIP cores ramGB hasGPU role storageGB",
    NetworkResources: "totalNodes totalCores totalRAMGB totalStorageGB gpuNodes",
    TrainingConfiguration: """distributionStrategy coordinationProtocol storageBackend resourceAllocation
        dataSharding faultTolerance loadBalancing""",
    DatasetInfo: "file sizeMB records shards shardSizeRecords",
    NodeAssignment: """weight coresAllocated ramAllocatedGB gpuAvailable naturalLanguageShardSize
        codingLanguageShardSize""",
    PipelinePhase: "name action nodes parallel",
    TrainingGuarantees: """networkUtilization resourceUtilization faultTolerance loadBalancing
        dataAvailability coordination""",
    DistributedTrainingConfig: """timestamp networkTopology totalResources trainingConfiguration
        nodeAssignments dataDistribution trainingPipeline guarantees""",
}


@pytest.mark.parametrize("structure", FIELDS)
def test_json_names_and_their_order_are_the_specification_s(structure: type[msgspec.Struct]) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(structure)]
    assert names == FIELDS[structure].split()


def test_values_are_immutable_and_can_be_keys() -> None:
    with pytest.raises(AttributeError):
        QFOX.cores = 1  # type: ignore[misc]
    assert len({lean_default_config(), lean_default_config()}) == 1


def test_resources_are_the_sums_of_the_nodes() -> None:
    assert NetworkResources.from_nodes(ALL_NODES) == NetworkResources(6, 36, 72, 1800, 1)
    assert NetworkResources.from_nodes(iter(())) == NetworkResources(0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("size_bytes", "megabytes"), [(0, 0), (499_999, 0), (500_000, 1), (1_499_999, 1), (137_400_000, 137)]
)
def test_a_measured_data_set_is_told_in_whole_megabytes(size_bytes: int, megabytes: int) -> None:
    measured = DatasetInfo.measured("prose.parquet", size_bytes=size_bytes, records=65_318, shards=6)
    assert measured == DatasetInfo("prose.parquet", megabytes, 65_318, 6, 10_886)


def test_a_data_set_without_shards_has_no_shard_size() -> None:
    assert DatasetInfo.measured("prose.parquet", size_bytes=1, records=5, shards=0).shard_size_records == 0
