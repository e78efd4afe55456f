from __future__ import annotations

import csv

import pytest

from provision.build.export import CONTAINERD, choose_export, parse_output
from provision.errors import MissingDependencyError, UsageError

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


def test_an_output_is_read_field_by_field():
    destination = parse_output('type=oci,"dest=/tmp/a, b.tar",compression=zstd,compression-level=19')
    assert destination.kind == "oci"
    assert str(destination.path) == "/tmp/a, b.tar"
    assert dict(destination.options) == {"compression": "zstd", "compression-level": "19"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("type=oci", "`dest=` names the file"),
        ("dest=a", "type `` is none of"),
        ("type=oci,dest=-", "would mix"),
        ("type=zip,dest=a", "type `zip` is none of"),
        ("type=registry", "`--push`"),
        ("type=image,name=x", "`--build`"),
        ("type=oci,dest=a,dest=b", "stands there twice"),
        ("type=oci,dest=a,compression", "`compression` has no value"),
        ("type=oci,dest=a,compression=lz4", "not one of zstd"),
        ("type=oci,dest=a,compression-level=23", "not one of"),
        ("type=oci,dest=a,pusch=true", "`pusch` is nothing that type `oci` takes"),
        ("type=tar,dest=a,compression=zstd", "`compression` is nothing that type `tar` takes"),
        ('type=oci,"dest=a', "not a list of fields"),
        ("type=oci,dest=a\nb", "not a list of fields"),
    ],
)
def test_a_malformed_output_is_named(text, said):
    with pytest.raises(UsageError) as caught:
        parse_output(text)
    assert said in " ".join((caught.value.message, *caught.value.because))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_compression_is_met_or_refused(compression):
    export = choose_export(CONTAINERD, "push", compression=compression)
    assert f"compression={compression}" in str(export.output())
    for store, is_buildx in (("overlay2", True), (CONTAINERD, False)):
        with pytest.raises(MissingDependencyError, match="cannot compress"):
            choose_export(store, "push", is_buildx=is_buildx, compression=compression)


def test_an_archive_is_written_by_the_builder_or_saved_from_the_store():
    destination = parse_output("type=oci,dest=image.tar")
    export = choose_export(CONTAINERD, "file", destination=destination)
    assert export.output("x.tar") == (
        "type=oci,dest=x.tar,compression=zstd,compression-level=3,oci-mediatypes=true,rewrite-timestamp=true"
    )
    assert choose_export("overlay2", "file", destination=destination).is_saved
    given = parse_output("type=oci,dest=image.tar,compression=gzip")
    assert "compression=gzip" in str(choose_export(CONTAINERD, "file", destination=given).output("x"))
    with pytest.raises(MissingDependencyError):
        choose_export("overlay2", "file", destination=given)


@pytest.mark.parametrize("kind", ["tar", "local"])
@pytest.mark.parametrize("store", ["overlay2", CONTAINERD])
def test_a_file_system_can_be_had_from_every_builder_that_takes_an_output(kind, store):
    destination = parse_output(f"type={kind},dest=x")
    export = choose_export(store, "file", destination=destination)
    assert export.output("y") == f"type={kind},dest=y"
    assert not export.is_saved
    with pytest.raises(MissingDependencyError, match="file system"):
        choose_export(store, "file", is_buildx=False, destination=destination)
    with pytest.raises(UsageError, match="has no layers"):
        choose_export(store, "file", compression="zstd", destination=destination)


def test_an_archive_of_the_engines_own_kind_is_saved_or_written():
    destination = parse_output("type=docker,dest=x")
    assert choose_export("overlay2", "file", destination=destination).is_saved
    assert choose_export(CONTAINERD, "file", destination=destination).output("x") == "type=docker,dest=x"
