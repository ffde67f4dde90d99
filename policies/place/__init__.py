"""Place: where?"""
