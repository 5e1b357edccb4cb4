-- Clients over InfiniBand among the traces of boots: racks hear them and do not answer them (docs/decisions/083-other-architecture.md).

create index boot_trace_infiniband on boot_trace (stored_at)
  where body @> '{"entries": [{"reason": "infiniband"}]}';
