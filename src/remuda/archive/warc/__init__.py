"""WARC 1.1 records, their index (CDXJ) and their package (WACZ)."""
