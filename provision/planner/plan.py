"""From a job to machines: what fits, how fast, at what cost, what nothing else beats, what to take instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby

from provision.errors import DataError
from provision.matrix.load import Matrix
from provision.matrix.model import CloudProvider, Gpu, MigProfile
from provision.planner.catalogue import Offer, Price, price_of
from provision.planner.cost import Cost, Extras, MissingPriceError, add_up
from provision.planner.fit import Fit, UnfitError, computing, fit_job, unmet
from provision.planner.job import Job
from provision.planner.memory import BYTES, lora_parameters, read_constants
from provision.planner.service import Service, size_service
from provision.planner.speed import NoSpeedError, Objectives, Speed, Speeds
from provision.planner.spot import Interruption, interrupt, mtbf_of_bin
from provision.predict.networks import Network
from provision.predict.precision import first_capabilities
from provision.records import record, replace

Hours = tuple[float, float, float]
"""Shortest, likely and longest duration."""

_GB = 1e9
_FALLBACKS = 3
_NODES_MOST = 8
_ENDLESS_FACTOR = 1e6


@record
class Terms:
    """How things may be paid.

    Attributes:
        purchases: Of :data:`~provision.planner.catalogue.PURCHASES`.
        rates: Currency → US dollars.
        extras: Storage, traffic, peaks; their prices only where somebody gave them.
    """

    purchases: tuple[str, ...]
    rates: Mapping[str, float]
    extras: Extras


@record
class Row:
    """One way to run the job.

    Attributes:
        purchase: How it is paid; ``price`` is that of one node an hour.
        hours: Of the work, interruptions included.
        speed: Of the whole job, or of one replica that serves; absent where only a duration was given.
        service: How many replicas serve; absent for other tasks.
        risk: Expected interruptions; 0 where nobody takes a machine back.
        is_first: Nothing else is at least as cheap, fast and safe.
        assumed: What was filled in, one sentence each.
    """

    offer: Offer
    nodes: int
    purchase: str
    price: Price
    fit: Fit
    speed: Speed | None
    service: Service | None
    spot: Interruption | None
    hours: Hours
    cost: Cost
    risk: float
    is_first: bool = False
    assumed: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs, or parts of GPUs, of all nodes."""
        return self.offer.instance.gpu_count * self.nodes


@record
class Rejection:
    """Why a machine is in no row; ``kind`` is ``filter``, ``stack``, ``memory``, ``speed``, ``price`` or ``spot``."""

    offer: Offer
    kind: str
    why: str


@record
class Plan:
    """All ways to run a job.

    Attributes:
        rows: Cheapest first; those that miss the deadline or the budget are in ``missed`` instead.
        fallbacks: What to take if the first is not to be had: each differs from it and from each other in GPU,
            provider or region. A price is no promise of a machine.
        rejected: The others, in the order of the catalogue.
    """

    rows: tuple[Row, ...]
    missed: tuple[Row, ...]
    fallbacks: tuple[Row, ...]
    rejected: tuple[Rejection, ...]

    @property
    def winner(self) -> Row | None:
        """The cheapest way that keeps the deadline and the budget."""
        return self.rows[0] if self.rows else None


class _RefusedError(Exception):
    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind
        self.why = why


def make_plan(
    job: Job,
    offers: tuple[Offer, ...],
    terms: Terms,
    matrix: Matrix,
    *,
    speeds: Speeds,
    no_stack: Callable[[Gpu], str | None] = lambda _: None,
) -> Plan:
    """Return all ways to run a job on some machines.

    Args:
        job: The job, checked.
        offers: The machines.
        terms: How they may be paid.
        matrix: The facts.
        speeds: What tells how fast it is.
        no_stack: For a GPU, why no software stack serves it; ``None`` when one does.

    Raises:
        DataError: The facts lack a limit.
    """
    maker = _Maker(job, terms, matrix, speeds, no_stack)
    rows: list[Row] = []
    rejected: list[Rejection] = []
    for offer in offers:
        try:
            rows += maker.rows(offer)
        except _RefusedError as refused:
            rejected.append(Rejection(offer=offer, kind=refused.kind, why=refused.why))
    kept = [row for row in rows if _keeps(row, job)]
    ranked = _mark(sorted(kept, key=_rank))
    missed = tuple(sorted((row for row in rows if not _keeps(row, job)), key=_rank))
    return Plan(rows=ranked, missed=missed, fallbacks=_fallbacks(ranked), rejected=tuple(rejected))


def _rank(row: Row) -> tuple[float, float, float, str, int]:
    return (round(row.cost.usd, 6), row.hours[2], row.risk, row.offer.name + row.purchase, row.nodes)


def _keeps(row: Row, job: Job) -> bool:
    is_late = job.deadline_hours is not None and row.hours[2] > job.deadline_hours
    return not is_late and not (job.budget_usd is not None and row.cost.usd > job.budget_usd)


def _mark(rows: list[Row]) -> tuple[Row, ...]:
    """Mark the Pareto front of cost, time and risk; the rows come cheapest first."""
    front: list[tuple[float, float]] = []
    marked = []
    for row in rows:
        is_first = not any(hours <= row.hours[2] and risk <= row.risk for hours, risk in front)
        if is_first:
            front.append((row.hours[2], row.risk))
        marked.append(replace(row, is_first=is_first))
    return tuple(marked)


def _fallbacks(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the next rows that do not stand or fall with those before: another provider or region, or another GPU."""
    if not rows:
        return ()
    chosen = [rows[0]]
    for row in rows[1:]:
        mine = row.offer.instance
        others = [other.offer.instance for other in chosen]
        if all((mine.provider, mine.region, mine.gpu) != (each.provider, each.region, each.gpu) for each in others):
            # The third of one provider helps less than the first of another.
            if sum(mine.provider == each.provider for each in others) >= 2:
                continue
            chosen.append(row)
        if len(chosen) > _FALLBACKS:
            break
    return tuple(chosen[1:])


class _Maker:
    def __init__(
        self,
        job: Job,
        terms: Terms,
        matrix: Matrix,
        speeds: Speeds,
        no_stack: Callable[[Gpu], str | None],
    ) -> None:
        self._job = job
        self._terms = terms
        self._speeds = speeds
        self._no_stack = no_stack
        self._stackless: dict[str, str | None] = {}
        self._constants = read_constants(matrix)
        self._limits: dict[str, float] = {row.id: row.value for row in matrix.rows("planning.toml", "limit")}
        settings = matrix.settings("planning.toml")
        without = settings.get("gpus_without_encoder")
        self._encoderless = frozenset(without.values if without is not None else ())
        self._firsts = first_capabilities(matrix)
        self._profiles: tuple[MigProfile, ...] = matrix.rows("planning.toml", "mig_profile")

    def _limit(self, name: str) -> float:
        try:
            return self._limits[name]
        except KeyError as error:
            raise DataError(f"planning.toml: the limit `{name}` is missing") from error

    def rows(self, offer: Offer) -> list[Row]:
        """Return every way to use one kind of machine.

        Raises:
            _RefusedError: There is none.
        """
        job, instance = self._job, offer.instance
        if (why := unmet(job, instance, offer.gpu, self._encoderless, self._firsts)) is not None:
            raise _RefusedError("filter", why)
        suited = replace(job, precisions=computing(job, offer.gpu, self._firsts) if job.precisions else ())
        profile = self._profile(offer)
        if offer.gpu.id not in self._stackless:
            self._stackless[offer.gpu.id] = self._no_stack(offer.gpu)
        if (why := self._stackless[offer.gpu.id]) is not None:
            raise _RefusedError("stack", why)
        found: list[Row] = []
        refused: _RefusedError | None = None
        for nodes in self._node_counts(offer):
            try:
                fits = fit_job(
                    suited,
                    instance,
                    nodes,
                    self._constants,
                    usable_share=self._limit("usable_memory_share"),
                    profile=profile,
                )
            except UnfitError as error:
                refused = _RefusedError("memory", str(error))
                continue
            for purchase in self._terms.purchases:
                ways = []
                for fit in fits:
                    try:
                        ways.append(self._row(offer, nodes, fit, purchase))
                    except _RefusedError as error:
                        refused = error
                found += sorted(ways, key=_rank)[:1]
        if not found:
            raise refused or _RefusedError("filter", "no number of nodes is allowed")
        return found

    def _profile(self, offer: Offer) -> MigProfile | None:
        if self._job.mig is None:
            return None
        if offer.instance.gpu_share is not None:
            raise _RefusedError("filter", "a part of a GPU cannot be cut further")
        for profile in self._profiles:
            if profile.profile == self._job.mig and offer.gpu.id in profile.gpus:
                return profile
        raise _RefusedError("filter", f"{offer.gpu.name} has no MIG profile {self._job.mig} in the facts")

    def _node_counts(self, offer: Offer) -> list[int]:
        job = self._job
        fixed = self._fixed_nodes(offer)
        if fixed is not None:
            return [fixed]
        if not job.is_training or job.mig is not None or offer.instance.fabric is None:
            return [1]
        most = _NODES_MOST if job.max_nodes is None else job.max_nodes
        return [2**power for power in range(most.bit_length())]

    def _fixed_nodes(self, offer: Offer) -> int | None:
        """Return the number of machines that was asked for, by itself or as a number of GPUs; absent where neither was.

        Raises:
            _RefusedError: No number of these machines has so many GPUs.
        """
        job, instance = self._job, offer.instance
        if job.gpus is None:
            return job.nodes
        if instance.gpu_share is not None:
            raise _RefusedError("filter", "it has a part of a GPU, and whole GPUs are requested")
        nodes, rest = divmod(job.gpus, instance.gpu_count)
        if rest:
            raise _RefusedError("filter", f"machines of {instance.gpu_count} GPUs do not make {job.gpus}")
        if job.nodes not in (None, nodes):
            raise _RefusedError("filter", f"{job.nodes} of them have {job.nodes * instance.gpu_count} GPUs")
        if nodes > 1 and job.is_training and instance.fabric is None and job.nodes is None:
            raise _RefusedError("filter", f"no network for training joins {nodes} of them")
        if job.max_nodes is not None and nodes > job.max_nodes:
            raise _RefusedError("filter", f"{job.gpus} GPUs take {nodes} of them, and {job.max_nodes} are allowed")
        return nodes

    def _row(self, offer: Offer, nodes: int, fit: Fit, purchase: str) -> Row:
        job = self._job
        price = price_of(offer.instance, purchase, self._terms.rates)
        if price is None:
            rate = (
                ""
                if offer.instance.currency in self._terms.rates
                else f" in dollars (`--rate {offer.instance.currency}=…`)"
            )
            raise _RefusedError("price", f"its price {purchase.replace('-', ' ')} is not known{rate}")
        assumed: list[str] = []
        service: Service | None = None
        try:
            speed = self._speed(offer, nodes, fit)
        except NoSpeedError as error:
            has_objectives = job.ttft_ms is not None or job.tpot_ms is not None
            if job.amount is not None or job.requests_per_second is not None or has_objectives:
                raise _RefusedError("speed", str(error)) from error
            assumed.append(str(error))
            speed = None
        if job.task == "inference" and speed is not None and job.requests_per_second is not None:
            service = size_service(
                speed, job.requests_per_second, replicas_per_node=fit.replicas, peak=self._terms.extras.peak_factor
            )
            fixed = self._fixed_nodes(offer)
            allowed = job.max_nodes if fixed is None else fixed
            if allowed is not None and service.nodes > allowed:
                raise _RefusedError("filter", f"the load takes {service.nodes} of them, and {allowed} are allowed")
            nodes = service.nodes if fixed is None else fixed
        if job.mig is not None and job.is_training:
            assumed.append("one MIG instance trains, and the whole machine is paid")
        work = self._hours(speed)
        spot = self._spot(offer, nodes, purchase, work, assumed)
        if spot is not None and spot.factor > self._limit("spot_factor_max"):
            times = "never ends" if spot.factor > _ENDLESS_FACTOR else f"takes {spot.factor:.3g} times as long"
            raise _RefusedError("spot", f"with interruptions every {spot.mtbf_hours:.3g} h it {times}")
        cost = self._cost(offer, nodes, purchase, price, work, spot, service, assumed)
        stretch = spot.factor if spot is not None and service is None else 1.0
        return Row(
            offer=offer,
            nodes=nodes,
            purchase=purchase,
            price=price,
            fit=fit,
            speed=speed,
            service=service,
            spot=spot,
            hours=(work[0] * stretch, work[1] * stretch, work[2] * stretch),
            cost=cost,
            risk=round(spot.interruptions, 6) if spot is not None else 0.0,
            assumed=(*(job.shape.assumed if job.shape is not None else ()), *job.assumed, *assumed),
        )

    def _speed(self, offer: Offer, nodes: int, fit: Fit) -> Speed | None:
        job = self._job
        link = offer.instance.interconnect
        if job.network is not None and fit.images is not None:
            return self._share(self._images(offer, nodes, fit, job.network), fit.share)
        if job.shape is None:
            return None
        if fit.training is not None:
            return self._share(
                self._speeds.train(job.shape, offer.gpu, fit.layout, fit.training, nodes=nodes, link=link), fit.share
            )
        if fit.serving is None:
            return None
        return self._speeds.serve(
            job.shape,
            offer.gpu,
            fit.layout,
            fit.serving,
            output=job.output,
            share=fit.share,
            objectives=Objectives(ttft_ms=job.ttft_ms, tpot_ms=job.tpot_ms),
        )

    def _images(self, offer: Offer, nodes: int, fit: Fit, network: Network) -> Speed:
        speed = self._speeds.images(
            network,
            offer.gpu,
            fit.layout,
            batch=fit.images or 1,
            nodes=nodes,
            link=offer.instance.interconnect,
            task="vision-training" if self._job.is_training else "vision-inference",
            name=self._job.name,
        )
        return speed if self._job.is_training else replace(speed, unit="requests/s")

    @staticmethod
    def _share(speed: Speed, share: float) -> Speed:
        if share == 1:
            return speed
        return replace(
            speed,
            low=speed.low * share,
            median=speed.median * share,
            high=speed.high * share,
            basis=(*speed.basis, f"{share:.0%} of the GPU"),
        )

    def _hours(self, speed: Speed | None) -> Hours:
        job = self._job
        if job.amount is None or speed is None:
            hours = job.hours or 0.0
            return (hours, hours, hours)
        seconds = 3600.0
        return (
            job.amount / speed.high / seconds,
            job.amount / speed.median / seconds,
            job.amount / speed.low / seconds,
        )

    def _checkpoint_hours(self, nodes: int, assumed: list[str]) -> float:
        job = self._job
        size = job.checkpoint_gb
        if size is None:
            if job.shape is None and job.network is None:
                minutes = self._limit("restart_minutes")
                assumed.append(f"a checkpoint takes {minutes:g} min (`--checkpoint-gb` says better)")
                return minutes / 60
            trained = _trained_parameters(job)
            # Weights in fp32 and the two moments of Adam, whatever the GPUs hold.
            size = trained * (BYTES["fp32"] + 2 * BYTES["fp32"]) / _GB
            assumed.append(f"a checkpoint is {size:.3g} GB: fp32 weights and two moments")
        rate = job.checkpoint_gb_s or self._limit("checkpoint_gb_s")
        return size / (rate * nodes) / 3600

    def _spot(self, offer: Offer, nodes: int, purchase: str, work: Hours, assumed: list[str]) -> Interruption | None:
        job = self._job
        if purchase != "spot":
            return None
        mtbf = job.mtbf_hours
        if mtbf is None:
            label = offer.instance.interruptions
            mtbf = mtbf_of_bin(label, self._limit("hours_per_month")) if label is not None else None
            if mtbf is None:
                mtbf = self._limit("spot_capped_mtbf_hours")
                said = f"{label} a month" if label is not None else "no source says how often"
                assumed.append(f"spot is taken back every {mtbf:g} h a node ({said}; `--mtbf` says better)")
        restart = (job.restart_minutes if job.restart_minutes is not None else self._limit("restart_minutes")) / 60
        if job.task == "inference":
            # Replicas that are taken back are replaced; the others go on.
            lost = restart / (mtbf + restart)
            return Interruption(
                mtbf_hours=mtbf / nodes,
                checkpoint_hours=0.0,
                restart_hours=restart,
                interval_hours=None,
                factor=1 / (1 - lost),
                interruptions=work[1] * nodes / mtbf,
            )
        taken = max(1, round(nodes * (job.spot_share if job.spot_share is not None else 1.0)))
        return interrupt(
            work[1],
            mtbf_hours=mtbf / taken,
            checkpoint_hours=self._checkpoint_hours(nodes, assumed),
            restart_hours=restart,
            has_checkpoints=job.has_checkpoints,
        )

    def _steady(self, offer: Offer) -> tuple[str, Price]:
        """Return how the nodes are paid that are not spot: the cheapest way that was allowed, on demand otherwise."""
        allowed = [name for name in self._terms.purchases if name != "spot"] or ["on-demand"]
        prices = [(name, price_of(offer.instance, name, self._terms.rates)) for name in allowed]
        known = [(price.usd, name, price) for name, price in prices if price is not None]
        if not known:
            said = " or ".join(name.replace("-", " ") for name in allowed)
            raise _RefusedError("price", f"its price {said}, for the nodes that stay, is not known")
        _, name, price = min(known, key=lambda item: item[:2])
        return name, price

    def _cost(
        self,
        offer: Offer,
        nodes: int,
        purchase: str,
        price: Price,
        work: Hours,
        spot: Interruption | None,
        service: Service | None,
        assumed: list[str],
    ) -> Cost:
        job, extras = self._job, self._terms.extras
        factor = spot.factor if spot is not None else 1.0
        pools: list[tuple[str, Price, float, float]] = [(purchase, price, nodes, factor)]
        if spot is not None and job.spot_share is not None and job.spot_share < 1:
            name, steady = self._steady(offer)
            part = job.spot_share * nodes
            pools = [("spot", price, part, factor), (name, steady, nodes - part, factor)]
        if purchase.startswith("reserved"):
            assumed.append("a reservation is paid whether it is used or not; only the hours of this job are counted")
        provider = offer.provider
        published: dict[str, object] = {}
        if extras.storage_usd_gb_month is None:
            published["storage_usd_gb_month"] = provider.storage_usd_gb_month
            published["storage_origin"] = _origin(provider, "storage_usd_gb_month")
        if extras.egress_usd_gb is None:
            published["egress_usd_gb"] = provider.egress_usd_gb
            published["egress_origin"] = _origin(provider, "egress_usd_gb")
        priced = replace(
            extras,
            **published,
            hours_per_month=self._limit("hours_per_month"),
            # What serves is counted in whole replicas for the peak already.
            peak_factor=1.0 if service is not None else extras.peak_factor,
        )
        try:
            return add_up(tuple(pools), hours=work, gpus=offer.instance.gpu_count * nodes, extras=priced)
        except MissingPriceError as error:
            raise _RefusedError("price", str(error)) from error


def _trained_parameters(job: Job) -> float:
    if job.shape is None:
        return job.network.parameters if job.network is not None else 0.0
    return job.shape.parameters if job.method == "full" else lora_parameters(job.shape, job.lora_rank, job.adapted)


def _origin(provider: CloudProvider, field: str) -> str:
    origin = provider.evidence.get(field, provider)
    return f"of {provider.prices_date} from {', '.join(origin.source)}"


def summarise(rejected: tuple[Rejection, ...]) -> dict[str, int]:
    """Return how many machines were left out for each kind of reason, by kind."""
    kinds = sorted(rejection.kind for rejection in rejected)
    return {kind: len(list(group)) for kind, group in groupby(kinds)}
