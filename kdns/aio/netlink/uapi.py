"""Numbers of Linux's netlink interfaces, under the names of its headers (include/uapi/linux).

They are written here since importing them from pyroute2 takes 0.16 s and 12 MiB at every start; a test holds each
against pyroute2.
"""

from __future__ import annotations

from typing import Final

# netlink.h
NETLINK_ROUTE: Final = 0
NETLINK_SOCK_DIAG: Final = 4
NETLINK_NETFILTER: Final = 12
SOL_NETLINK: Final = 270
NETLINK_ADD_MEMBERSHIP: Final = 1
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
NLM_F_REQUEST: Final = 0x01
NLM_F_ACK: Final = 0x04
NLM_F_CREATE: Final = 0x400
NETLINK_CAP_ACK: Final = 10
NLM_F_DUMP_INTR: Final = 0x10
NLM_F_DUMP: Final = 0x300
NLA_F_NESTED: Final = 0x8000
NLA_TYPE_MASK: Final = 0x3FFF

# rtnetlink.h, if_addr.h
RTM_GETADDR: Final = 22
RTNLGRP_IPV4_IFADDR: Final = 5
RTNLGRP_IPV6_IFADDR: Final = 9
IFA_ADDRESS: Final = 1
IFA_LOCAL: Final = 2

# netfilter/nfnetlink.h
NFNL_SUBSYS_CTNETLINK: Final = 1
NFNL_SUBSYS_ACCT: Final = 7
NFNL_SUBSYS_NFTABLES: Final = 10
NFNL_MSG_BATCH_BEGIN: Final = 0x10
NFNL_MSG_BATCH_END: Final = 0x11
NFNLGRP_NFTABLES: Final = 7

# netfilter/nfnetlink_conntrack.h
IPCTNL_MSG_CT_GET: Final = 1
IPCTNL_MSG_CT_DELETE: Final = 2
CTA_TUPLE_ORIG: Final = 1
CTA_TUPLE_REPLY: Final = 2
CTA_ID: Final = 12
CTA_ZONE: Final = 18
CTA_FILTER: Final = 25
CTA_FILTER_ORIG_FLAGS: Final = 1
CTA_FILTER_REPLY_FLAGS: Final = 2
CTA_TUPLE_IP: Final = 1
CTA_TUPLE_PROTO: Final = 2
CTA_IP_V4_SRC: Final = 1
CTA_IP_V4_DST: Final = 2
CTA_IP_V6_SRC: Final = 3
CTA_IP_V6_DST: Final = 4
CTA_PROTO_NUM: Final = 1
CTA_PROTO_SRC_PORT: Final = 2
CTA_PROTO_DST_PORT: Final = 3
FILTER_FLAG_CTA_PROTO_NUM: Final = 1 << 3
"""The bit of CTA_FILTER_ORIG_FLAGS that selects flows by CTA_PROTO_NUM."""

# netfilter/nf_tables.h
NFT_MSG_GETTABLE: Final = 1
NFT_MSG_DELTABLE: Final = 2
NFT_MSG_GETCHAIN: Final = 4
NFT_MSG_GETRULE: Final = 7
NFT_MSG_DELRULE: Final = 8
NFT_MSG_GETSET: Final = 10
NFT_MSG_NEWSETELEM: Final = 12
NFT_MSG_GETSETELEM: Final = 13
NFT_MSG_DELSETELEM: Final = 14
NFT_MSG_NEWGEN: Final = 15
NFT_SET_ANONYMOUS: Final = 0x1
NFT_SET_MAP: Final = 0x8
NFTA_TABLE_NAME: Final = 1
NFTA_CHAIN_TABLE: Final = 1
NFTA_CHAIN_NAME: Final = 3
NFTA_RULE_TABLE: Final = 1
NFTA_RULE_CHAIN: Final = 2
NFTA_SET_TABLE: Final = 1
NFTA_SET_NAME: Final = 2
NFTA_SET_FLAGS: Final = 3
NFTA_SET_ELEM_LIST_TABLE: Final = 1
NFTA_SET_ELEM_LIST_SET: Final = 2
NFTA_SET_ELEM_LIST_ELEMENTS: Final = 3
NFTA_SET_ELEM_KEY: Final = 1
NFTA_SET_ELEM_DATA: Final = 2
NFTA_SET_ELEM_USERDATA: Final = 6
NFTA_SET_ELEM_EXPR: Final = 7
NFTA_SET_ELEM_KEY_END: Final = 10
NFTA_SET_ELEM_EXPRESSIONS: Final = 11
NFTA_LIST_ELEM: Final = 1
NFTA_DATA_VALUE: Final = 1
NFTA_DATA_VERDICT: Final = 2
NFTA_VERDICT_CODE: Final = 1
NFTA_VERDICT_CHAIN: Final = 2
NF_DROP: Final = 0
NFT_GOTO: Final = -4
NFTA_EXPR_DATA: Final = 2
NFTA_COUNTER_BYTES: Final = 1
NFTA_COUNTER_PACKETS: Final = 2
NFTA_GEN_PROC_PID: Final = 2
NFTA_GEN_PROC_NAME: Final = 3

# netfilter/nfnetlink_acct.h
NFNL_MSG_ACCT_NEW: Final = 0
NFNL_MSG_ACCT_GET: Final = 1
NFACCT_NAME: Final = 1
NFACCT_PKTS: Final = 2

# sock_diag.h, unix_diag.h
SOCK_DIAG_BY_FAMILY: Final = 20
UDIAG_SHOW_NAME: Final = 0x01
UDIAG_SHOW_UID: Final = 0x40
UNIX_DIAG_NAME: Final = 0
UNIX_DIAG_UID: Final = 7
