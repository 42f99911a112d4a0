"""Secrets: the files that they are in, the certificates, who may do what, and how users come and go.

Nothing is imported here: services read the folder's names only, and know neither broker nor store.
"""
