"""Select: which of the waiting jobs runs next?"""
