"""The version of leasework."""

VERSION = "0.1.0"
