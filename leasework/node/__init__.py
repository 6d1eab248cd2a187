"""The node: one process's part in running an application."""

from leasework.node.node import Node
from leasework.node.plan import EXIT_FENCED, NodePlan, Tools

__all__ = ["EXIT_FENCED", "Node", "NodePlan", "Tools"]
