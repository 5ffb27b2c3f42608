# The same job with a store, every 2 h a checkpoint. The sizes are such that storage costs as much as recovery, and that a
# fifth of what is kept are increments: 50 of 4 GiB beside full checkpoints of 800 GiB.
hours           = 1000
on_demand_price = 3.0
spot_price      = 0.8
interruptions   = 5
recovery_hours  = 2
interval        = "2h"
full_size       = "800GiB"
increment_size  = "4GiB"
retention       = "100h"
storage_price   = 0.0219
what_if         = "1h"
