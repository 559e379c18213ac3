"""What people would otherwise build: each peer an api and a worker of few lines, written as its library's manual says.

All have the same HTTP contract (see `contract`), call the same engine the same way, and know nothing of the product but
its generated stubs and its preparation of pictures, so that differences are the queue's alone.
"""
