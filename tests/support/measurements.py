"""A table of measurements as somebody would write it by hand."""

TABLE = """\
# source: made up
# driver: 550.54
workload,gpu_type,gpus,batch_size,per,time_s,power_w,energy_of,metric,target,higher_is_better,\
epochs,reached,seed,power_limit_w,default_batch_size
net,L4,1,64,run,1000,60,gpu,accuracy,0.7,yes,10,yes,1,72,64
net,L4,1,64,run,1300,62,gpu,accuracy,0.7,yes,13,yes,2,72,64
net,L4,1,64,epoch,110,48,gpu,accuracy,0.7,yes,,,,50,64
net,L4,1,128,run,1080,66,gpu,accuracy,0.7,yes,12,yes,1,72,64
net,L4,1,128,run,1900,66,gpu,accuracy,0.7,yes,20,no,2,72,64
"""
"""Two batch sizes, two power limits at one of them, and a run that missed its target."""

POINTS = """\
workload,gpu_type,gpus,batch_size,seed,epoch,value,time_s
net,L4,1,64,1,5,0.5,500
net,L4,1,64,1,10,0.71,1000
"""
"""Evaluations of its first run."""
