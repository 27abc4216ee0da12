"""Owners of rows: partitions of a data set over simulated clients."""

from fedcal.partition.dealing import DEALT as DEALT
from fedcal.partition.dealing import PARTITIONS as PARTITIONS
from fedcal.partition.dealing import client_names as client_names
from fedcal.partition.dealing import deal as deal
from fedcal.partition.dealing import forms as forms
from fedcal.partition.dealing import parse as parse
from fedcal.partition.owners import DrawnPartition as DrawnPartition
from fedcal.partition.owners import Partition as Partition
from fedcal.partition.owners import dirichlet as dirichlet
from fedcal.partition.owners import held_out as held_out
from fedcal.partition.owners import iid as iid
from fedcal.partition.owners import label_shards as label_shards
from fedcal.partition.owners import quantity as quantity
