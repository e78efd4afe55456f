# provision.matrix sha256:8628fb0e5ea51a5c325df177adb4d107fc198a0f98e62cc3fd5422ba7e35eaa1
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

target "tools-345ed670" {
  context = "shared/tools-345ed670"
  target = "tools"
  contexts = { "base" = "target:base-8c242204" }
  platforms = ["linux/amd64"]
  cache-from = cache_from("tools-345ed670")
  cache-to = cache_to("tools-345ed670")
  output = ["type=cacheonly"]
}

target "tools-38eb0416" {
  context = "shared/tools-38eb0416"
  target = "tools"
  contexts = { "base" = "target:base-d8e0292b" }
  platforms = ["linux/arm64"]
  cache-from = cache_from("tools-38eb0416")
  cache-to = cache_to("tools-38eb0416")
  output = ["type=cacheonly"]
}

target "tools-610f6943" {
  context = "shared/tools-610f6943"
  target = "tools"
  contexts = { "base" = "target:base-ca114a62" }
  platforms = ["linux/amd64"]
  cache-from = cache_from("tools-610f6943")
  cache-to = cache_to("tools-610f6943")
  output = ["type=cacheonly"]
}

target "tools-9d629671" {
  context = "shared/tools-9d629671"
  target = "tools"
  contexts = { "base" = "target:base-8c242204" }
  platforms = ["linux/amd64"]
  cache-from = cache_from("tools-9d629671")
  cache-to = cache_to("tools-9d629671")
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
  contexts = { "base" = "target:base-d8e0292b", "tools" = "target:tools-38eb0416" }
  args = { "SOURCE_DATE_EPOCH" = "1702512000" }
  platforms = ["linux/arm64"]
  tags = [named("jax-cuda13:${TAG}"), named("jax-cuda13:lock-e19a14a197ed")]
  cache-from = concat(cache_from("jax-cuda13"), cache_from("tools-38eb0416"))
  cache-to = cache_to("jax-cuda13")
  attest = ["type=provenance,disabled=true"]
  output = ["type=image,compression=zstd,compression-level=3,oci-mediatypes=true"]
}

target "torch-cu121" {
  context = "torch-cu121"
  contexts = { "base" = "target:base-ca114a62", "tools" = "target:tools-610f6943" }
  args = { "SOURCE_DATE_EPOCH" = "1702512000" }
  platforms = ["linux/amd64"]
  tags = [named("torch-cu121:${TAG}"), named("torch-cu121:lock-202a075267ad")]
  cache-from = concat(cache_from("torch-cu121"), cache_from("tools-610f6943"))
  cache-to = cache_to("torch-cu121")
  attest = ["type=provenance,disabled=true"]
  output = ["type=image,compression=zstd,compression-level=3,oci-mediatypes=true"]
}

target "torch-devel-sources" {
  context = "torch-devel-sources"
  contexts = { "cuda" = "target:cuda-565e5ab4", "base" = "target:base-8c242204", "tools" = "target:tools-9d629671" }
  args = { "SOURCE_DATE_EPOCH" = "1702512000" }
  platforms = ["linux/amd64"]
  tags = [named("torch-devel-sources:${TAG}"), named("torch-devel-sources:lock-3ce5d5bcc5c5")]
  cache-from = concat(cache_from("torch-devel-sources"), cache_from("cuda-565e5ab4"), cache_from("tools-9d629671"))
  cache-to = cache_to("torch-devel-sources")
  attest = ["type=provenance,disabled=true"]
  output = ["type=image,compression=zstd,compression-level=3,oci-mediatypes=true"]
}

target "torch-user-requirements" {
  context = "torch-user-requirements"
  contexts = { "base" = "target:base-8c242204", "tools" = "target:tools-345ed670" }
  args = { "SOURCE_DATE_EPOCH" = "1702512000" }
  platforms = ["linux/amd64"]
  tags = [named("torch-user-requirements:${TAG}"), named("torch-user-requirements:lock-efd51101ae59")]
  cache-from = concat(cache_from("torch-user-requirements"), cache_from("tools-345ed670"))
  cache-to = cache_to("torch-user-requirements")
  attest = ["type=provenance,disabled=true"]
  output = ["type=image,compression=zstd,compression-level=3,oci-mediatypes=true"]
}
