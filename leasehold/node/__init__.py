"""The node: one process's part in running an application."""

from leasehold.node.node import Node
from leasehold.node.plan import EXIT_FENCED, NodePlan, Tools

__all__ = ["EXIT_FENCED", "Node", "NodePlan", "Tools"]
