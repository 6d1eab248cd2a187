"""The version of leasehold."""

VERSION = "0.1.0"
