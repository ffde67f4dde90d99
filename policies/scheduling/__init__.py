"""What schedulers are made of: queues, preemption by attained service, backfilling."""
