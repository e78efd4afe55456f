from __future__ import annotations

import csv

import pytest

from provision.build.export import CONTAINERD, choose_export

PURPOSES = ("local", "push", "file")


@pytest.mark.parametrize("store", ["overlay2", "vfs", "btrfs", CONTAINERD])
@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("is_buildx", [True, False])
def test_every_choice_says_why(store, purpose, is_buildx):
    export = choose_export(store, purpose, is_buildx=is_buildx)
    assert export.purpose == purpose
    assert export.why
    assert not export.why.endswith(".")


@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_graph_driver_store_takes_layers_without_compression(purpose):
    export = choose_export("overlay2", purpose)
    assert export.output() == "type=docker"
    assert export.is_saved == (purpose == "file")


@pytest.mark.parametrize("purpose", ["local", "push"])
def test_the_containerd_store_gets_zstd_and_never_gzip(purpose):
    export = choose_export(CONTAINERD, purpose)
    assert export.output() == "type=image,compression=zstd,compression-level=3,oci-mediatypes=true"


def test_time_stamps_are_rewritten_only_where_nothing_is_unpacked():
    rewriting = {
        (store, purpose)
        for store in ("overlay2", CONTAINERD)
        for purpose in PURPOSES
        if "rewrite-timestamp" in str(choose_export(store, purpose).output())  # type: ignore[arg-type]
    }
    assert rewriting == {(CONTAINERD, "file")}


def test_layers_of_the_base_stay_as_they_were_pulled():
    assert "force-compression" not in str(choose_export(CONTAINERD, "push").output())


@pytest.mark.parametrize("destination", ["a.tar", "a,b.tar", 'a"b,c.tar', "a b.tar"])
def test_the_destination_survives_the_comma_list(destination):
    output = choose_export(CONTAINERD, "file").output(destination)
    assert output is not None
    (fields,) = csv.reader([output])
    assert f"dest={destination}" in fields


@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_builder_without_output_gets_none(purpose):
    export = choose_export(CONTAINERD, purpose, is_buildx=False)
    assert export.output() is None
    assert export.is_saved == (purpose == "file")
