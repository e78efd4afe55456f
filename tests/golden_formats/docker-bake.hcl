# provision.matrix sha256:746446069096779a74d56874ea066b074769029f6e9ce943ef836eb84686feed
# 5 stacks: facts of 2026-11-21. Written by `provision image`; edits here count as drift.
# Build, in this folder, with any buildx builder: docker buildx bake [--builder NAME] [--push] [GROUP|TARGET]
# Each can be set for one build by a variable of the environment.
variable "REGISTRY" {
  default = "registry.example/ml"
}

variable "CACHE" {
  default = "registry.example/ml/cache"
}

variable "TAG" {
  default = "latest"
}

function "named" {
  params = [name]
  result = REGISTRY == "" ? name : "${REGISTRY}/${name}"
}

function "cache_from" {
  params = [name]
  result = CACHE == "" ? [] : ["type=registry,ref=${CACHE}:${name}"]
}

function "cache_to" {
  params = [name]
  result = CACHE == "" ? [] : ["type=registry,ref=${CACHE}:${name},mode=max,image-manifest=true,oci-mediatypes=true,compression=zstd"]
}

group "default" {
  targets = ["cuda-only", "jax-cuda13", "torch-cu121", "torch-devel-sources", "torch-user-requirements"]
}

group "cuda" {
  targets = ["cuda-only"]
}

group "jax" {
  targets = ["jax-cuda13"]
}

group "linux-amd64" {
  targets = ["cuda-only", "torch-cu121", "torch-devel-sources", "torch-user-requirements"]
}

group "linux-arm64" {
  targets = ["jax-cuda13"]
}

group "torch" {
  targets = ["torch-cu121", "torch-devel-sources", "torch-user-requirements"]
}

target "base-336e06b3" {
  context = "shared/base-336e06b3"
  target = "base"
  platforms = ["linux/amd64"]
  output = ["type=cacheonly"]
}

target "base-8c242204" {
  context = "shared/base-8c242204"
  target = "base"
  platforms = ["linux/amd64"]
  output = ["type=cacheonly"]
}

target "base-ca114a62" {
  context = "shared/base-ca114a62"
  target = "base"
  platforms = ["linux/amd64"]
  output = ["type=cacheonly"]
}

target "base-d8e0292b" {
  context = "shared/base-d8e0292b"
  target = "base"
  platforms = ["linux/arm64"]
  output = ["type=cacheonly"]
}

target "cuda-565e5ab4" {
  context = "shared/cuda-565e5ab4"
  target = "cuda"
  platforms = ["linux/amd64"]
  cache-from = cache_from("cuda-565e5ab4")
  cache-to = cache_to("cuda-565e5ab4")
  output = ["type=cacheonly"]
}

target "tools-993d9095" {
  context = "shared/tools-993d9095"
  target = "tools"
  contexts = { "base" = "target:base-ca114a62" }
  platforms = ["linux/amd64"]
  cache-from = cache_from("tools-993d9095")
  cache-to = cache_to("tools-993d9095")
  output = ["type=cacheonly"]
}

target "tools-b23fe283" {
  context = "shared/tools-b23fe283"
  target = "tools"
  contexts = { "base" = "target:base-d8e0292b" }
  platforms = ["linux/arm64"]
  cache-from = cache_from("tools-b23fe283")
  cache-to = cache_to("tools-b23fe283")
  output = ["type=cacheonly"]
}

target "tools-df2fdbd3" {
  context = "shared/tools-df2fdbd3"
  target = "tools"
  contexts = { "base" = "target:base-8c242204" }
  platforms = ["linux/amd64"]
  cache-from = cache_from("tools-df2fdbd3")
  cache-to = cache_to("tools-df2fdbd3")
  output = ["type=cacheonly"]
}

target "tools-f496a6b7" {
  context = "shared/tools-f496a6b7"
  target = "tools"
  contexts = { "base" = "target:base-8c242204" }
  platforms = ["linux/amd64"]
  cache-from = cache_from("tools-f496a6b7")
  cache-to = cache_to("tools-f496a6b7")
  output = ["type=cacheonly"]
}

target "cuda-only" {
  context = "cuda-only"
  contexts = { "base" = "target:base-336e06b3" }
  args = { "SOURCE_DATE_EPOCH" = "1702512000" }
  platforms = ["linux/amd64"]
  tags = [named("cuda-only:${TAG}"), named("cuda-only:lock-664c519f8edc")]
  cache-from = concat(cache_from("cuda-only"))
  cache-to = cache_to("cuda-only")
  attest = ["type=provenance,disabled=true"]
  output = ["type=image,compression=zstd,compression-level=3,oci-mediatypes=true"]
}

target "jax-cuda13" {
  context = "jax-cuda13"
  contexts = { "base" = "target:base-d8e0292b", "tools" = "target:tools-b23fe283" }
  args = { "SOURCE_DATE_EPOCH" = "1702512000" }
  platforms = ["linux/arm64"]
  tags = [named("jax-cuda13:${TAG}"), named("jax-cuda13:lock-f97613a6b1ba")]
  cache-from = concat(cache_from("jax-cuda13"), cache_from("tools-b23fe283"))
  cache-to = cache_to("jax-cuda13")
  attest = ["type=provenance,disabled=true"]
  output = ["type=image,compression=zstd,compression-level=3,oci-mediatypes=true"]
}

target "torch-cu121" {
  context = "torch-cu121"
  contexts = { "base" = "target:base-ca114a62", "tools" = "target:tools-993d9095" }
  args = { "SOURCE_DATE_EPOCH" = "1702512000" }
  platforms = ["linux/amd64"]
  tags = [named("torch-cu121:${TAG}"), named("torch-cu121:lock-e7afad546678")]
  cache-from = concat(cache_from("torch-cu121"), cache_from("tools-993d9095"))
  cache-to = cache_to("torch-cu121")
  attest = ["type=provenance,disabled=true"]
  output = ["type=image,compression=zstd,compression-level=3,oci-mediatypes=true"]
}

target "torch-devel-sources" {
  context = "torch-devel-sources"
  contexts = { "cuda" = "target:cuda-565e5ab4", "base" = "target:base-8c242204", "tools" = "target:tools-df2fdbd3" }
  args = { "SOURCE_DATE_EPOCH" = "1702512000" }
  platforms = ["linux/amd64"]
  tags = [named("torch-devel-sources:${TAG}"), named("torch-devel-sources:lock-027a5a3223ab")]
  cache-from = concat(cache_from("torch-devel-sources"), cache_from("cuda-565e5ab4"), cache_from("tools-df2fdbd3"))
  cache-to = cache_to("torch-devel-sources")
  attest = ["type=provenance,disabled=true"]
  output = ["type=image,compression=zstd,compression-level=3,oci-mediatypes=true"]
}

target "torch-user-requirements" {
  context = "torch-user-requirements"
  contexts = { "base" = "target:base-8c242204", "tools" = "target:tools-f496a6b7" }
  args = { "SOURCE_DATE_EPOCH" = "1702512000" }
  platforms = ["linux/amd64"]
  tags = [named("torch-user-requirements:${TAG}"), named("torch-user-requirements:lock-12693e40d9de")]
  cache-from = concat(cache_from("torch-user-requirements"), cache_from("tools-f496a6b7"))
  cache-to = cache_to("torch-user-requirements")
  attest = ["type=provenance,disabled=true"]
  output = ["type=image,compression=zstd,compression-level=3,oci-mediatypes=true"]
}
