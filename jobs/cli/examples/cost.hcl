# The worked example: a model of 100 million parameters trains for 1000 GPU-hours, on one GPU.
hours           = 1000
on_demand_price = 3.0
spot_price      = 0.8
interruptions   = 5
recovery_hours  = 2

# What is done about it: incremental checkpoints, and runs of 200 h instead of one of 1000 h.
storage_saving = 0.4
run_hours      = 1000
split_hours    = 200

# An assumption, and no figure that follows from those above: what the spot hours cost on average.
paid_price = 0.744
