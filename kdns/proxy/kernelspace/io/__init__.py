"""HCN through computenetwork.dll, and the mode's proxier on it."""
